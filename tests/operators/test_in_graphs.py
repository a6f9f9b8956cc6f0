"""Kernels in graphs of torch: one node, whoever traces, whether they were called before or not."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import tilesmith as helion
from tests.operators import graph_kernels as kernels
from tests.warm_python import warm_python

STATES = ("cold", "warm")
OPCHECKS = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
BACKENDS = ("eager", "aot_eager")

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


@pytest.fixture(autouse=True)
def _no_graphs_of_other_tests() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.fixture(params=STATES)
def make(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Makes a kernel, called before or not."""

    def make_kernel(function: Any, *args: Any, **settings: Any) -> Any:
        kernel = kernels.fresh(function, **settings)
        if request.param == "warm":
            kernel(*(arg.clone() if isinstance(arg, torch.Tensor) else arg for arg in args))
        return kernel

    return make_kernel


def nodes(graph: torch.fx.Graph) -> list[str]:
    return [str(node.target) for node in graph.nodes if node.op == "call_function"]


@pytest.mark.parametrize("static_shapes", [True, False])
@pytest.mark.parametrize("backend", BACKENDS)
def test_compiled_for_first_second_and_later_shapes(make: Any, backend: str, static_shapes: bool):
    kernel = make(kernels.scale, torch.randn(8), static_shapes=static_shapes)
    compiled = torch.compile(lambda x: kernel(x + 1) * 3, backend=backend, fullgraph=True)
    for size in (8, 9, 31):
        x = torch.randn(size)
        torch.testing.assert_close(compiled(x), (x + 1) * 6)


def test_inductor_compiles_around_it():
    kernel = kernels.fresh(kernels.scale)
    compiled = torch.compile(lambda x: kernel(x + 1, factor=4.0) * 3, fullgraph=True)
    x = torch.randn(37)
    torch.testing.assert_close(compiled(x), (x + 1) * 12)


@pytest.mark.parametrize("requires_grad", [False, True])
def test_autograd_does_not_look_at_what_a_graph_holds(make: Any, requires_grad: bool):
    kernel = make(kernels.scale, torch.randn(8), 3.0)
    graphs: list[torch.fx.Graph] = []

    def compiler(graph: torch.fx.GraphModule, _: Any) -> Any:
        graphs.append(graph.graph)
        return make_boxed_func(graph.forward)

    backend = aot_autograd(fw_compiler=compiler)
    compiled = torch.compile(lambda x: kernel(x + 1, 3.0) * 2, backend=backend, fullgraph=True)
    x = torch.randn(8, requires_grad=requires_grad)
    found = compiled(x)
    torch.testing.assert_close(found, (x + 1) * 6)
    if requires_grad:
        torch.testing.assert_close(torch.autograd.grad(found.sum(), x)[0], torch.full([8], 6.0))
    found_names = [name for graph in graphs for name in nodes(graph) if "tilesmith" in name]
    name = next(name for name in found_names if "_backward" not in name)
    assert name.endswith(".inner")
    assert len(found_names) == 1 + requires_grad
    inner = getattr(torch.ops.tilesmith, name.split(".")[1]).inner
    torch.library.opcheck(inner, (x.detach(), 3.0), test_utils=OPCHECKS)


def test_sizes_stay_symbolic():
    kernel = kernels.fresh(kernels.scale)
    seen: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, _: Any) -> Any:
        seen.append(graph)
        return graph.forward

    compiled = torch.compile(lambda x: kernel(x + 1), backend=backend, fullgraph=True, dynamic=True)
    for size in (8, 9, 31):
        x = torch.randn(size)
        torch.testing.assert_close(compiled(x), (x + 1) * 2)
    assert len(seen) == 1
    assert sum("tilesmith.call" in target for target in nodes(seen[0].graph)) == 1


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("bias", [None, torch.arange(5.0)], ids=["none", "tensor"])
def test_dicts_optional_tensors_flags_and_types(make: Any, backend: str, bias: Any):
    kernel = make(kernels.row_sums, torch.randn(8, 5), bias, True, torch.float64)

    def function(x: torch.Tensor) -> Any:
        found = kernel(x + 1, bias, True, torch.float64)
        return found["out"] * 2, found["sums"], found["x"], found["is_doubled"]

    compiled = torch.compile(function, backend=backend, fullgraph=True)
    for rows in (8, 9):
        x = torch.randn(rows, 5)
        exact = 2 * (x.double() + 1 + (0 if bias is None else bias))
        out, sums, given, flag = compiled(x)
        assert out.dtype == torch.float64
        torch.testing.assert_close(out, exact * 2, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(sums.double(), exact.sum(-1), atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(given, x + 1)
        assert flag is True


@pytest.mark.parametrize("requires_grad", [False, True])
def test_results_may_be_numbers_only(make: Any, requires_grad: bool):
    kernel = make(kernels.only_numbers, torch.randn(8), 21)
    compiled = torch.compile(lambda x: kernel(x, 21), backend="aot_eager", fullgraph=True)
    assert compiled(torch.randn(8, requires_grad=requires_grad)) == (42, 0.5)


@pytest.mark.parametrize("dynamic", [False, None])
@pytest.mark.parametrize("backend", BACKENDS)
def test_returned_numbers_are_those_of_the_call(backend: str, dynamic: bool | None):
    """The numbers of the first call were returned by all later ones."""
    kernel = kernels.fresh(kernels.with_numbers)
    compiled = torch.compile(kernel, backend=backend, dynamic=dynamic)
    for size, number in ((8, 1), (9, 1), (8, 2), (31, 3), (8, 1)):
        x = torch.randn(size)
        out, *numbers = compiled(x, number)
        torch.testing.assert_close(out, x * 2)
        assert numbers == [number + 1, size * 0.5, size > 8]


def test_returned_numbers_of_recorded_calls():
    kernel = kernels.fresh(kernels.with_numbers)
    kernel.register_backward(lambda ctx, grad, *_: (grad * 2, None))
    for size in (8, 9, 31):
        x = torch.randn(size, requires_grad=True)
        out, *numbers = kernel(x, size)
        assert numbers == [size + 1, size * 0.5, size > 8]
        out.sum().backward()
        torch.testing.assert_close(x.grad, torch.full([size], 2.0))


def test_a_returned_size_stays_symbolic(make: Any):
    kernel = make(kernels.with_its_size, torch.randn(8))

    def function(x: torch.Tensor) -> torch.Tensor:
        out, size = kernel(x + 1)
        return out * size

    compiled = torch.compile(function, backend="aot_eager", fullgraph=True, dynamic=True)
    for size in (8, 9, 31):
        x = torch.randn(size)
        torch.testing.assert_close(compiled(x), (x + 1) * 2 * size)


def test_other_tensors_for_other_sizes_end_the_graph():
    kernel = kernels.fresh(kernels.one_or_two)
    compiled = torch.compile(lambda x: kernel(x * 1), backend="aot_eager", dynamic=False)
    for size in (8, 9, 8):
        x = torch.randn(size)
        first, second = compiled(x)
        torch.testing.assert_close(first, x * 2)
        assert second is None if size == 8 else torch.equal(second, x * 2 + 1)


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_it_writes_is_changed(make: Any, backend: str):
    kernel = make(kernels.add_in_place, torch.randn(8), torch.randn(8))

    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = x * 1
        kernel(z, y)
        kernel(x, y)
        return z + x

    x, y = torch.randn(8), torch.randn(8)
    before = x.clone()
    result = torch.compile(function, backend=backend, fullgraph=True)(x, y)
    torch.testing.assert_close(x, before + y)
    torch.testing.assert_close(result, 2 * (before + y))


def test_several_launches_are_one_node(make: Any):
    kernel = make(kernels.two_launches, torch.rand(8))
    compiled = torch.compile(lambda x: kernel(x * 2), backend="aot_eager", fullgraph=True)
    x = torch.rand(8)
    exact = (2 * x + 1) / (2 * x + 1).sum()
    torch.testing.assert_close(compiled(x), exact)


def test_functions_of_a_module_and_defaults_are_arguments(make: Any):
    kernel = make(kernels.with_function, torch.randn(8))
    x = torch.randn(8)
    plain = torch.compile(kernel, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(plain(x), x * 3)
    relu = kernels.relu_epilogue
    other = torch.compile(lambda x: kernel(x, relu), backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(other(x), torch.relu(x * 3))


def test_any_number_of_arguments_and_keywords(make: Any):
    x, y, z = (torch.randn(8) for _ in range(3))
    kernel = make(kernels.sum_of_all, x, y, z)
    for given, factor in (((), 1.0), ((y,), 2.0), ((y, z), 3.0)):
        torch.compiler.reset()
        call = torch.compile(kernel, backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(call(x, *given, factor=factor), (x + sum(given)) * factor)
    torch.testing.assert_close(torch.vmap(kernel)(x[None], y[None], z[None])[0], x + y + z)


@pytest.mark.parametrize("backend", BACKENDS)
def test_views_of_arguments_are_views_in_graphs(make: Any, backend: str):
    kernel = make(kernels.view_of_argument, torch.ones(8))

    def function(x: torch.Tensor) -> torch.Tensor:
        shown = kernel(x)
        shown.mul_(10)
        return shown

    compiled = torch.compile(function, backend=backend, fullgraph=True)
    for size in (8, 10, 12):
        x = torch.ones(size)
        shown = compiled(x)
        torch.testing.assert_close(x, torch.full((size,), 20.0))
        assert shown.shape == (2, size // 2)
        assert shown.data_ptr() == x.data_ptr()


def test_a_graph_ends_where_a_kernel_cannot_be_an_operator(make: Any):
    kernel = make(kernels.two_views, torch.ones(8))

    def function(x: torch.Tensor) -> torch.Tensor:
        return kernel(x * 2)[0] + 1

    compiled = torch.compile(function, backend="eager")
    torch.testing.assert_close(compiled(torch.ones(8)), torch.full((2, 4), 4.0))
    torch.compiler.reset()
    with pytest.raises(Exception, match="cannot be an operator: it returns two views"):
        torch.compile(function, backend="eager", fullgraph=True)(torch.ones(8))
    with pytest.raises(helion.exc.NoOperator, match="it returns two views of one tensor"):
        kernel.operator((torch.ones(8),))


def test_a_closure_is_no_argument_of_an_operator():
    kernel = kernels.fresh(kernels.with_function)
    bias = torch.tensor(2.0)

    def function(x: torch.Tensor) -> torch.Tensor:
        return kernel(x, lambda acc: acc + bias[()])

    x = torch.randn(8)
    torch.testing.assert_close(torch.compile(function, backend="eager")(x), x * 3 + 2)


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_make_fx(make: Any, mode: Any):
    kernel = make(kernels.scale, torch.randn(8))
    traced = make_fx(lambda x: kernel(x + 1) * 3, tracing_mode=mode)(torch.randn(8))
    x = torch.randn(8)
    torch.testing.assert_close(traced(x), (x + 1) * 6)
    assert sum("tilesmith.scale" in target for target in nodes(traced.graph)) == 1
    assert not any("empty" in target for target in nodes(traced.graph))


def test_jit_trace(make: Any):
    kernel = make(kernels.scale, torch.randn(8))
    traced: Any = torch.jit.trace(lambda x: kernel(x + 1) * 3, (torch.randn(8),))
    x = torch.randn(8)
    torch.testing.assert_close(traced(x), (x + 1) * 6)


def test_fake_tensors(make: Any):
    kernel = make(kernels.row_sums, torch.randn(4, 5), None, False, torch.float16)
    with FakeTensorMode() as mode:
        found = kernel(mode.from_tensor(torch.randn(4, 5)), None, False, torch.float16)
        made = kernel(torch.empty(3, 7), None, False, torch.bfloat16)
    assert (found["out"].shape, found["out"].dtype) == ((4, 5), torch.float16)
    assert (made["sums"].shape, made["out"].dtype) == ((3,), torch.bfloat16)


def test_functionalization(make: Any):
    kernel = make(kernels.add_in_place, torch.randn(8), torch.randn(8))

    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = x * 1
        kernel(z, y)
        return z

    x, y = torch.randn(8), torch.randn(8)
    traced = make_fx(torch.func.functionalize(function))(x, y)
    torch.testing.assert_close(traced(x, y), x + y)


def test_vmap(make: Any):
    kernel = make(kernels.scale, torch.randn(8))
    x = torch.randn(3, 8)
    torch.testing.assert_close(torch.vmap(kernel)(x), x * 2)
    torch.testing.assert_close(torch.vmap(kernel, in_dims=1)(x.T.contiguous()), x * 2)


def test_vmap_of_several_results_and_of_writes(make: Any):
    kernel = make(kernels.row_sums, torch.randn(4, 5), None, True, torch.float32)

    def both(x: torch.Tensor) -> Any:
        found = kernel(x, None, True, torch.float32)
        return found["out"], found["sums"]

    x = torch.randn(3, 4, 5)
    out, sums = torch.vmap(both)(x)
    torch.testing.assert_close(out, x * 2)
    torch.testing.assert_close(sums, (x * 2).sum(-1))
    adding = make(kernels.add_in_place, torch.randn(8), torch.randn(8))
    a, b = torch.randn(3, 8), torch.randn(3, 8)
    exact = a + b
    torch.vmap(lambda x, y: adding(x, y) * 1)(a, b)
    torch.testing.assert_close(a, exact)


@pytest.mark.parametrize("context", [torch.inference_mode(), torch.autocast("cpu", torch.bfloat16)])
def test_inference_and_autocast(make: Any, context: Any):
    kernel = make(kernels.scale, torch.randn(8))
    compiled = torch.compile(lambda x: kernel(x + 1) * 3, backend="aot_eager", fullgraph=True)
    with context:
        x = torch.randn(8)
        torch.testing.assert_close(compiled(x), (x + 1) * 6)
        torch.testing.assert_close(kernel(x), x * 2)


class _Scaled(torch.nn.Module):
    """A model whose kernel another process can find by its name."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return exported_scale(x + 1) * 3


exported_scale = helion.kernel(kernels.scale)

LOADING = """
import sys, torch, tilesmith
from tests.operators import test_in_graphs
program = torch.export.load(sys.argv[1])
x = torch.arange(11.0)
torch.testing.assert_close(program.module()(x), (x + 1) * 6)
print("the same")
"""


@pytest.mark.parametrize("strict", [True, False])
def test_export_and_load(strict: bool, tmp_path: Path):
    dims = {"x": {0: torch.export.Dim("size", min=2)}}
    program = torch.export.export(_Scaled(), (torch.randn(8),), dynamic_shapes=dims, strict=strict)
    x = torch.randn(11)
    torch.testing.assert_close(program.module()(x), (x + 1) * 6)
    assert "@" not in program.graph_module.code, "nothing of this process"
    lowered = nodes(program.run_decompositions().graph)
    assert sum("tilesmith.scale" in target for target in lowered) == 1
    path = tmp_path / "scaled.pt2"
    torch.export.save(program, path)
    torch.testing.assert_close(torch.export.load(path).module()(x), (x + 1) * 6)


def test_an_exported_program_finds_its_kernel_in_another_process(tmp_path: Path):
    path = tmp_path / "scaled.pt2"
    torch.export.save(torch.export.export(_Scaled(), (torch.randn(11),)), path)
    command = [*warm_python(), "-W", "ignore", "-c", LOADING, str(path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "the same" in ended.stdout, ended.stderr


@pytest.mark.full
def test_aot_inductor_packages_it(tmp_path: Path):
    program = torch.export.export(_Scaled(), (torch.randn(8),))
    path = torch._inductor.aoti_compile_and_package(program, package_path=tmp_path / "scaled.pt2")
    x = torch.randn(8)
    torch.testing.assert_close(torch._inductor.aoti_load_package(path)(x), (x + 1) * 6)


TRAINING = """
import torch
from benchmarks.recorded_calls import registered_swiglu

kernel = registered_swiglu()
compiled = torch.compile(lambda gate, up: kernel(gate, up) * 2, fullgraph=True)
gate, up = (torch.randn(4, 16, requires_grad=True) for _ in range(2))
compiled(gate, up).sum().backward()
(torch.nn.functional.silu(gate) * up * -2).sum().backward()
torch.testing.assert_close(gate.grad, torch.zeros(4, 16), atol=1e-5, rtol=0)
print("the same")
"""


@pytest.mark.full
def test_another_process_compiles_the_same_graph_again(tmp_path: Path):
    """What torch keeps of the first must not be used: operators of its backward are not there."""
    for _ in range(2):
        ended = subprocess.run(
            [sys.executable, "-c", TRAINING],
            env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert "the same" in ended.stdout, ended.stderr


def test_an_integer_argument_is_returned():
    # With dynamic shapes it is a symbol, which no size of a tensor equals.
    shifted = helion.kernel(kernels.shifted_by_an_integer)
    compiled = torch.compile(shifted, fullgraph=True, dynamic=True, backend="eager")
    for size, n in ((5, 3), (6, 3), (6, 40)):
        x = torch.randn(size)
        found = compiled(x, n)
        assert found["n"] == n
        torch.testing.assert_close(found["out"], x + n)
