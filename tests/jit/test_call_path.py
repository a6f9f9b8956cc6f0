"""Later calls take shorter ways than first ones: they must see everything the first ones see."""

from __future__ import annotations

import ast
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import tilesmith as helion
import tilesmith.language as hl
from tilesmith import exc
from tilesmith.frontend.source.kernel_source import KernelSource
from tilesmith.frontend.source.untouched_tensors import leaves_tensors
from tilesmith.jit import call_finder, definition
from tilesmith.runtime.calls.reader import process_readers
from tilesmith.settings import Settings


@helion.kernel
def add(x, y):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = x[tile] + y[tile]
    return out


@helion.kernel
def scale_into(x, y, alpha=2.0, beta=0.5):
    for tile in hl.tile(x.size()):
        y[tile] = x[tile] * alpha + beta
    return y


@pytest.fixture(autouse=True, params=["native", "python"])
def fresh(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels that know no call, on a machine with and without a native reader of tensors."""
    if request.param == "python":
        store = SimpleNamespace(get=lambda cache_dir: None)
        monkeypatch.setattr(definition, "process_readers", lambda: store)
    elif process_readers().get(Path(Settings().cache_dir)) is None:
        pytest.skip(process_readers().obstacle)
    add.reset()
    scale_into.reset()


def check_add(x: torch.Tensor, y: torch.Tensor) -> None:
    expected = (x.double() + y.double()).to(x.dtype)
    assert torch.equal(add(x, y), expected)


def test_shapes_strides_types_and_alignments_alternate(traces: list[str]):
    base = torch.randn(40, 33)
    pairs = [(base[:n, :m], torch.randn(n, m)) for n, m in ((1, 1), (7, 5), (8, 32), (13, 31))]
    pairs += [(base[1:8, 1:6], base[2:9, 3:8]), (base[:7, :5].t(), torch.randn(5, 7))]
    pairs += [(x.double(), y.double()) for x, y in pairs[:2]]
    pairs += [(torch.randn(65)[1:], torch.randn(64)), (torch.randn(64), torch.randn(67)[3:])]
    for _ in range(3):
        for x, y in (*pairs, *reversed(pairs)):
            check_add(x, y)
    assert len(traces) <= len(pairs)


def test_forms_are_learned_whoever_bound_the_kernel(monkeypatch):
    """Later calls with a form do not make its key, also where ``bind`` came before."""
    pairs = [(torch.randn(n, 3), torch.randn(n, 3)) for n in (2, 4, 6)]
    for pair in pairs:
        add.bind(pair)
    check_add(*pairs[0])
    for pair in pairs:
        check_add(*pair)
    monkeypatch.setattr(add._finder, "_learn", None)
    monkeypatch.setattr(type(add._keys), "key", None)
    found = [add._finder.find(*pair) for pair in pairs]
    assert len(set(map(id, found))) == 3
    assert None not in found
    assert len(add._finder._learned) == 3
    is_native = add._finder._native is not None
    assert is_native or len(add._finder._forms[(torch.Tensor, torch.Tensor)]) == 3


@helion.kernel(static_shapes=False)
def add_any(x, y):
    for tile in hl.tile(x.size()):
        x[tile] = x[tile] + y[tile]
    return x


def test_runtime_sizes_have_one_form_for_all_shapes(traces: list[str]):
    add_any.reset()
    memory = torch.randn(40, 50)
    pairs = [(torch.randn(n, m), torch.randn(n, m)) for n, m in [(3, 4), (5, 9), (64, 2)]]
    pairs += [(memory[:9, :7], memory[9:18, :7]), (torch.randn(6, 1), torch.randn(6, 1))]
    pairs.append((memory, memory))
    for _ in range(3):
        for x, y in (*pairs, *reversed(pairs)):
            expected = x.double() + y.double()
            assert torch.allclose(add_any(x, y).double(), expected, atol=1e-6)
    assert len(traces) == 3, "all sizes, axes of one element, shared storage"
    if add_any._finder._native is not None:
        assert len(add_any._finder._native) == 2, "one for axes of one element, one for all others"
        assert add_any._finder._native(*pairs[1]) is add_any.bind(pairs[2])


def test_more_forms_than_are_known(monkeypatch, traces: list[str]):
    monkeypatch.setattr(call_finder, "MAX_FORMS", 3)
    for _ in range(3):
        for size in range(1, 9):
            check_add(torch.randn(size), torch.randn(size))
    assert len(traces) == 8
    assert len(add._finder._learned) <= 3


def test_a_form_found_under_older_rules_is_not_learned():
    x, y = torch.randn(5), torch.randn(5)
    check_add(x, y)
    key = add.specialization_key((x, y))
    add.reset()
    add._finder._learn(key, x, y)
    assert not add._finder._learned
    assert add._finder._native is None


def test_classes_of_tensors_alternate():
    x, y = torch.randn(16), torch.randn(16)
    for _ in range(3):
        check_add(x, y)
        check_add(torch.nn.Parameter(x), y)
        check_add(x, torch.nn.Parameter(y))


def test_more_combinations_of_types_than_are_told_apart(monkeypatch, traces: list[str]):
    monkeypatch.setattr(call_finder, "MAX_TYPES", 2)
    x, y = torch.randn(16), torch.empty(16)
    for _ in range(3):
        for alpha in (3, 2.0, True):
            for beta in (1, 0.25):
                expected = x * alpha + beta
                assert torch.allclose(scale_into(x, y, alpha, beta), expected)
    assert len(traces) == 6


def test_arguments_may_share_memory_after_calls_where_they_did_not():
    for _ in range(2):
        for start in (0, 3):
            x = torch.arange(20.0)
            assert torch.equal(scale_into(x[:13], torch.empty(13)), torch.arange(13.0) * 2 + 0.5)
            assert torch.equal(scale_into(x, x)[start:], torch.arange(20.0)[start:] * 2 + 0.5)


def test_defaults_and_keywords_are_filled_in():
    x, y = torch.randn(9), torch.empty(9)
    for _ in range(2):
        assert torch.allclose(scale_into(x, y), x * 2 + 0.5)
        assert torch.allclose(scale_into(x, y, 3.0), x * 3 + 0.5)
        assert torch.allclose(scale_into(x, y, beta=1.0), x * 2 + 1)
        assert torch.allclose(scale_into(y=y, x=x), x * 2 + 0.5)
        with pytest.raises(exc.WrongArguments):
            scale_into(x)  # pyright: ignore[reportCallIssue]
        with pytest.raises(exc.WrongArguments):
            scale_into(x, y, 1.0, 2.0, 3.0)  # pyright: ignore[reportCallIssue]


SHIFT = 1.0


@helion.kernel
def shifted(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] + SHIFT
    return out


def test_globals_are_looked_at_in_every_call(monkeypatch):
    x = torch.randn(8)
    for shift in (1.0, 1.0, 5.0, 1.0, -2.5):
        monkeypatch.setitem(globals(), "SHIFT", shift)
        assert torch.allclose(shifted(x), x + shift)


DTYPE = torch.float32


@helion.kernel
def as_type(x):
    out = torch.empty(x.shape, dtype=DTYPE)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile].to(DTYPE)
    return out


def test_what_host_code_makes_is_looked_at_in_every_call(monkeypatch):
    x = torch.randn(8)
    for dtype in (torch.float32, torch.float32, torch.float64, torch.float32, torch.bfloat16):
        monkeypatch.setitem(globals(), "DTYPE", dtype)
        assert torch.equal(as_type(x), x.to(dtype))


def test_a_config_set_later_is_used():
    x, y = torch.randn(64), torch.randn(64)
    check_add(x, y)
    check_add(x, y)
    bound = add.bind((x, y))
    before = bound.call
    bound.set_config(helion.Config(block_sizes=[16]))
    assert bound.call != before
    check_add(x, y)
    assert (
        bound.call
        is bound._executables.get(
            bound.config_spec.normalize(helion.Config(block_sizes=[16])), bound._runner
        ).recognised
    )


def test_sparse_tensors_are_refused_after_dense_ones():
    x = torch.eye(3)
    for _ in range(2):
        check_add(x, x)
        with pytest.raises(exc.UnsupportedArgumentType, match=r"`y` is a tensor of layout"):
            add(x, x.to_sparse())


def call_with_fake_tensors(x: torch.Tensor) -> torch.Tensor:
    with FakeTensorMode() as mode:
        found = add(mode.from_tensor(x), mode.from_tensor(x))
    return torch.empty(found.shape).copy_(x + x)  # it has sizes only


CALLS_WITHOUT_MEMORY = {
    "fake": call_with_fake_tensors,
    "functionalize": lambda x: torch.func.functionalize(add)(x, x),
    "vmap": lambda x: torch.vmap(add)(x, x),
}


@pytest.mark.parametrize("name", CALLS_WITHOUT_MEMORY)
@pytest.mark.parametrize("is_first", [True, False], ids=["first", "later"])
def test_tensors_without_memory_are_for_operators(name: str, is_first: bool):
    x = torch.randn(4, 4)
    if not is_first:
        for part in (x, x[0]):
            check_add(part, part)
    torch.testing.assert_close(CALLS_WITHOUT_MEMORY[name](x), x + x)
    check_add(x, x)


@pytest.mark.parametrize("is_first", [True, False], ids=["first", "later"])
def test_gradients_of_torch_func_go_through_the_operator(is_first: bool):
    x = torch.randn(4, 4)
    if not is_first:
        check_add(x, x)
    grad = torch.func.grad(lambda y: (add(y, y) ** 2).sum())(x)
    torch.testing.assert_close(grad, 8 * x)
    check_add(x, x)


def test_tensors_of_size_zero_need_no_memory():
    for _ in range(2):
        check_add(torch.empty(0, 4), torch.empty(0, 4))
        assert add(torch.empty(0), torch.zeros(0)).shape == (0,)


def test_a_kernel_called_in_device_code_is_refused_after_calls_on_the_host():
    x = torch.randn(4)
    check_add(x, x)

    @helion.kernel
    def outer(x):
        out = torch.empty_like(x)
        for tile in hl.tile(x.size(0)):
            out[tile] = add(x, x)[tile]
        return out

    with pytest.raises(exc.NestedKernelCallsNotSupported):
        outer(x)


def test_other_devices_are_refused_after_calls_with_this_one():
    x = torch.randn(4)
    for _ in range(2):
        check_add(x, x)
        with pytest.raises(exc.TensorsOnDifferentDevices):
            add(x, x.to("meta"))


def test_threads_share_a_kernel():
    failures: list[Exception] = []

    def work(seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        try:
            for step in range(60):
                size = (seed + step) % 8 + 1
                x, y = (torch.randn(size, 5, generator=generator) for _ in range(2))
                check_add(x, y)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@helion.kernel
def double_moved(x, other):
    x.set_(other)
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = x[tile] * 2
    return out


def test_memory_that_host_code_exchanges_is_seen():
    assert not double_moved.definition.is_read_once
    for number in range(4):
        other = torch.full((8,), float(number))
        assert double_moved(torch.zeros(8), other).tolist() == [2.0 * number] * 8


def _is_read_once(text: str) -> bool:
    """Of host code that stands before the loops of a kernel."""
    body = "\n    ".join(text.splitlines())
    tree = ast.parse(f"def f(x, y):\n    {body}\n    for t in hl.tile(x.size(0)): pass")
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    return leaves_tensors(KernelSource(lambda: None, "", function, len(function.body) - 1, 1))


@pytest.mark.parametrize(
    "text",
    [
        "pass",
        "m, n = x.size()\nout = torch.empty([m, n], dtype=x.dtype, device=x.device)",
        "n = hl.specialize(x.size(1))\nassert n > 3, f'{n}'\nout = x.new_empty(n)",
        "out = torch.empty_like(x) if y is None else y\nm = max(len(x.shape), 2)",
        "x = x.contiguous()\ny = y.view(-1)[1:]\nz = x + y",
        "n = helion.cdiv(x.size(0), 4)",
        "a, b = (z.reshape([-1, 4]) for z in (x, y))",
    ],
)
def test_host_code_that_leaves_tensors_alone(text: str):
    assert _is_read_once(text)


@pytest.mark.parametrize(
    "text",
    [
        "x.resize_(3)",
        "x.data = y",
        "torch.utils.swap_tensors(x, y)",
        "helper(x)",
        "helpers.view(x)",
        "setattr(x, 'data', y)",
        "y[0].t_()",
        "x.view(3).set_(y)",
        "max = y.f\nmax(x)",
        "make(3).view(x)",
        "ast.view(x)",
        "a = (z.t_() for z in (x, y))",
    ],
)
def test_host_code_that_may_change_tensors(text: str):
    assert not _is_read_once(text)


@helion.kernel(static_shapes=False)
def rows_of(x, width, scale):
    n = hl.specialize(x.size(1))
    most = hl.specialize(width)
    out = torch.empty([x.size(0), n], dtype=x.dtype, device=x.device)
    for tile in hl.tile(x.size(0)):
        out[tile, :] = x[tile, :] * scale + most
    return out


def test_numbers_that_host_code_specialises_count_by_value(monkeypatch, traces: list[str]):
    """Each form holds of one set of sizes; where there are too many, keys find the kernel."""
    monkeypatch.setattr(call_finder, "MAX_EXACT_FORMS", 5)
    rows_of.reset()
    cases = [(m, n, width) for m in (2, 3, 7) for n in (4, 5) for width in (1, 2)]
    for _ in range(3):
        for m, n, width in (*cases, *reversed(cases)):
            x = torch.randn(m, n)
            assert torch.allclose(rows_of(x, width, 2.0), x * 2 + width)
            assert torch.allclose(rows_of(x, width, 3.0), x * 3 + width)
    assert len(traces) == 4, "not for each number of rows"
    if rows_of._finder._native is not None:
        assert len(rows_of._finder._native) == 5
        rows_of.reset()
        x = torch.randn(2, 4)
        for _ in range(3):
            rows_of(x, 1, 2.0)
        monkeypatch.setattr(type(rows_of._keys), "key", None)
        found = rows_of._finder.find(x, 1, 2.0)
        assert type(found.call).__name__ == "FixedCall"
        found.bound.set_config(helion.Config(block_sizes=[1]))
        for _ in range(3):
            assert torch.equal(rows_of(x, 1, 2.0), x * 2 + 1)
        assert type(found.call).__name__ == "FixedCall"


@helion.kernel(static_shapes=False)
def halves_of(x):
    n = hl.specialize(x.size(1))
    out = torch.empty([x.size(0), n], dtype=x.dtype, device=x.device)
    hl.specialize(x.stride(0))
    for tile in hl.tile(out.size(0)):
        out[tile, :] = x[tile, :] / 2
    return out.view(n, -1)


def test_sizes_are_those_that_loops_see():
    halves_of.reset()
    for _ in range(4):
        for shape in ((3, 4), (8, 4), (5, 2), (2, 5)):
            x = torch.randn(shape)
            assert torch.equal(halves_of(x), (x / 2).view(shape[1], -1))


class Sizes(NamedTuple):
    first: torch.Tensor
    width: int


@helion.kernel(static_shapes=True)
def widened(sizes, scale):
    width = hl.specialize(sizes.width)
    out = torch.empty([sizes.first.size(0)], dtype=sizes.first.dtype)
    for tile in hl.tile(sizes.first.size(0)):
        out[tile] = sizes.first[tile] * width * scale
    return out


def test_numbers_of_containers_that_host_code_specialises():
    widened.reset()
    for _ in range(3):
        for width in (1, 2, 3, 2):
            for scale in (1.0, 2.0):
                x = torch.randn(5)
                assert torch.equal(widened(Sizes(x, width), scale), x * width * scale)
