"""Kernels that Triton compiles for sm_90, run by the PTX machine: results, races, places."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import triton

import tilesmith
import tilesmith.language as hl
from examples.attention import attention_fwd
from examples.matmul import matmul
from examples.softmax import softmax
from tests.fuzzing.execution import judge
from tests.fuzzing.replay import read
from tests.fuzzing.saved_programs import restored
from tests.fuzzing.simulated import calls_for_a_gpu, running_ptx
from tilesmith import Config
from tilesmith.backends.triton import backend
from tilesmith.backends.triton.build import compile_artifact
from tilesmith.numerics.compare import check_against
from tools.ptx_machine.launching import Launcher

FOUND = Path(__file__).parents[2] / "fuzzing" / "found_on_gpus.jsonl"
TRITON = tuple(map(int, triton.__version__.split(".")[:2]))
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


def run(kernel: Any, args: tuple[Any, ...], config: Config | None = None) -> Any:
    """A kernel's code for a GPU, on tensors of the CPU."""
    bound = kernel.bind(args, target="cuda:90")
    with running_ptx():
        return bound.compile_config(config or bound.config_spec.default_config())(*args)


@pytest.mark.parametrize("columns", [1, 63, 130])
def test_softmax(columns: int) -> None:
    x = torch.randn(5, columns)
    check_against(run(softmax, (x,)), torch.softmax(x.double(), 1), reduction_length=columns)


@pytest.mark.parametrize("size", [(16, 16, 16), (65, 40, 33), (128, 128, 96)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float16], ids=str)
def test_products(size: tuple[int, int, int], dtype: torch.dtype) -> None:
    m, k, n = size
    x, y = torch.randn(m, k).to(dtype), torch.randn(k, n).to(dtype)
    found = run(matmul, (x, y)).double()
    wanted = x.double() @ y.double()
    # Half a step of the results, and of tf32 operands for each term.
    step = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11, torch.float32: 2.0**-10}[dtype]
    bound = step * (x.double().abs() @ y.double().abs()) + 1e-6
    assert bool(((found - wanted).abs() <= bound).all())


@pytest.mark.parametrize("indexing", ["pointer", "tensor_descriptor"])
def test_products_of_four_warps_at_once(indexing: str) -> None:
    """Operands of ``wgmma`` by ``cp.async`` and by the copy engine, with partial tiles."""
    x, y = torch.randn(136, 72).bfloat16(), torch.randn(72, 200).bfloat16()
    config = Config(block_sizes=[64, 128, 64], num_warps=4, num_stages=3, indexing=indexing)
    found = run(matmul, (x, y), config)
    wanted = x.double() @ y.double()
    assert float((found.double() - wanted).norm() / wanted.norm()) < 2.0**-9


exact_matmul = tilesmith.kernel(matmul.fn, static_shapes=True, dot_precision="ieee")
EDGES = [(1, 1, 4), (4, 3, 8), (132, 100, 260), (128, 32, 128)]
MORE_EDGES = [(127, 32, 129), (129, 31, 132), (64, 97, 64), (0, 8, 8), (300, 300, 8)]


@pytest.mark.parametrize("turned", ["", "x", "y", "xy"])
@pytest.mark.parametrize(
    "size", [*EDGES, *(pytest.param(size, marks=pytest.mark.full) for size in MORE_EDGES)]
)
def test_multiply_adds_have_the_bits_of_the_plain_form(
    size: tuple[int, int, int], turned: str
) -> None:
    m, k, n = size
    x, y = torch.randn(m, k), torch.randn(k, n)
    x = x.T.contiguous().T if "x" in turned else x
    y = y.T.contiguous().T if "y" in turned else y
    bound = exact_matmul.bind((x, y), target="cuda:90")
    form = bound.config_spec.forms().get("multiply_add_roles")
    if form is None:
        pytest.skip("an operand whose rows the copy engine cannot bring")
    config = form.default_config().updated(structure="multiply_add_roles")
    plain = run(exact_matmul, (x, y), Config(block_sizes=[16, 16, 16]))
    found = run(exact_matmul, (x, y), config)
    assert found.equal(plain)
    check_against(found, x.double() @ y.double(), reduction_length=k)


@pytest.mark.parametrize("side", ["x", "y"])
def test_misaligned_operands_run_in_the_plain_form(side: str) -> None:
    x, y = torch.randn(132, 64), torch.randn(64, 136)
    bound = exact_matmul.bind((x, y), target="cuda:90")
    config = bound.config_spec.forms()["multiply_add_roles"].default_config()
    config = config.updated(structure="multiply_add_roles")
    moved = {"x": x, "y": y}
    moved[side] = torch.empty(moved[side].numel() + 1)[1:].view_as(moved[side]).copy_(moved[side])
    with running_ptx():
        found = bound.compile_config(config)(*moved.values())
    check_against(found, x.double() @ y.double(), reduction_length=64)


@pytest.mark.skipif(TRITON < (3, 7), reason="this Triton makes no clusters of programs")
def test_products_by_pairs_of_programs() -> None:
    """Boxes that are copied to both programs of a cluster at once."""
    x, y = torch.randn(520, 136).bfloat16(), torch.randn(136, 264).bfloat16()
    bound = matmul.bind((x, y), target="cuda:90")
    form = "clustered_roles"
    config = bound.config_spec.forms()[form].default_config().updated(structure=form)
    wanted = x.double() @ y.double()
    found = run(matmul, (x, y), config)
    assert float((found.double() - wanted).norm() / wanted.norm()) < 2.0**-9


@pytest.mark.parametrize("lengths", [(70, 130, 64), (128, 129, 128), (3, 257, 128)])
def test_attention_with_warp_roles(lengths: tuple[int, int, int]) -> None:
    m, n, d = lengths
    q, k, v = (torch.randn(2, size, d).bfloat16() for size in (m, n, n))
    bound = attention_fwd.bind((q, k, v), target="cuda:90")
    config = Config(block_sizes=[1, 128, 128], num_stages=2, num_warps=8, structure="warp_roles")
    with running_ptx():
        out, lse = bound.compile_config(config)(q, k, v)
    scores = q.double() @ k.double().mT / math.sqrt(d)
    wanted = torch.softmax(scores, -1) @ v.double()
    assert float((out.double() - wanted).norm() / wanted.norm()) < 2.0**-8
    assert torch.allclose(lse.double(), torch.logsumexp(scores, -1) / math.log(2.0), atol=1e-4)


@tilesmith.kernel(static_shapes=True)
def truncated(x: torch.Tensor, out: torch.Tensor, count: int) -> torch.Tensor:
    for tile in hl.tile(x.size(0)):
        wide = x[tile].to(torch.bfloat16)
        if count < 1:
            wide = wide + 1
        out[tile] = wide.to(out.dtype)
    return out


@pytest.mark.parametrize("narrow", [E4M3, E5M2], ids=str)
@pytest.mark.parametrize("to", [torch.int32, torch.int16, torch.uint8], ids=str)
def test_no_fp16_stands_between_eight_bits_and_integers(
    narrow: torch.dtype, to: torch.dtype
) -> None:
    """Triton makes bf16 of e4m3fn by way of fp16, which ptxas takes for the bf16 itself."""
    x = torch.tensor([0.0, 1.0, 1.75, 3.5, 96.0, 224.0]).to(narrow)
    out = torch.zeros(6, dtype=to)
    bound = truncated.bind((x, out, 1), target="cuda:90")
    config = bound.config_spec.default_config()
    with running_ptx():
        assert bound.compile_config(config)(x, out, 1).tolist() == [0, 1, 1, 3, 96, 224]
    compiled = compile_artifact(bound.to_artifact(config))
    assert "cvt.bf16.f16" not in compiled.assembly["ptx"]


QUICK = (1, 7, 11, 19, 24)
SLOW = [pytest.param(number, marks=pytest.mark.full) for number in (5, 6, 10, 16, 27)]


@pytest.mark.parametrize("number", [*QUICK, *SLOW])
def test_programs_that_were_wrong_on_gpus_are_right(number: int) -> None:
    """Values that loops exchange, and loads of what other threads store to."""
    data = read(f"{FOUND}:{number}")
    with running_ptx():
        verdict = judge(restored(data)[:2], data["index"], "ptx")
    assert verdict.failure is None
    assert verdict.cases


@pytest.mark.parametrize("number", [7, 10])
def test_without_barriers_threads_race(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What two of them were wrong by is seen where the rule is taken away that mended it."""
    monkeypatch.setattr(backend, "order_lanes", lambda function, schedule: function)
    data = read(f"{FOUND}:{number}")
    with running_ptx():
        verdict = judge(restored(data)[:1], data["index"], "ptx")
    assert verdict.failure is not None
    assert "a race" in verdict.failure.problem


@tilesmith.kernel(static_shapes=True)
def arithmetic_of_eight_bits(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    for tile in hl.tile(x.size(0)):
        a, b = x[tile], y[tile]
        out[0, tile] = a + b
        out[1, tile] = a - b
        out[2, tile] = -a
        out[3, tile] = a * b
        out[4, tile] = torch.clamp(a, -1, 2)
        out[5, tile] = torch.sign(b)
        out[6, tile] = torch.where(a < b, a, b)
        out[7, tile] = torch.maximum(a, b)
    return out


@pytest.mark.parametrize("dtype", [E4M3, E5M2], ids=str)
def test_arithmetic_of_eight_bits(dtype: torch.dtype) -> None:
    """Triton has none of it: sums, differences and negated numbers did not compile."""
    every = torch.arange(256).to(torch.uint8).view(dtype)
    x, y = every.repeat_interleave(256), every.repeat(256)
    out = torch.zeros(8, x.numel()).to(dtype)
    found = run(arithmetic_of_eight_bits, (x, y, out)).double().clone()
    a, b = x.float(), y.float()
    low = torch.where(a < b, a, b)
    high = torch.maximum(a, b)
    wanted = [a + b, a - b, -a, a * b, a.clamp(-1, 2), torch.sign(b), low, high]
    for row, values in zip(found, wanted):
        rounded = values.to(dtype).double()
        assert bool(((row == rounded) | (row.isnan() & rounded.isnan())).all())


@tilesmith.kernel(static_shapes=True, dot_precision="ieee")
def exact_with_additions(
    x: torch.Tensor, y: torch.Tensor, bias: torch.Tensor, rest: torch.Tensor
) -> torch.Tensor:
    out = torch.empty(x.size(0), y.size(1), dtype=torch.bfloat16)
    for rows, columns in hl.tile(out.size()):
        acc = hl.zeros([rows, columns], dtype=torch.float32)
        for depth in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[rows, depth], y[depth, columns])
        out[rows, columns] = (acc + bias[columns] + rest[rows, columns]).to(torch.bfloat16)
    return out


@pytest.mark.parametrize("bias_size", [1, 140])
@pytest.mark.parametrize("rest_size", [(1, 1), (132, 1), (1, 140), (132, 140)], ids=str)
def test_multiply_adds_add_expanded_tensors(bias_size: int, rest_size: tuple[int, int]) -> None:
    x, y = torch.randn(132, 40), torch.randn(40, 140)
    bias, rest = torch.randn(bias_size).expand(140), torch.randn(rest_size).expand(132, 140)
    bound = exact_with_additions.bind((x, y, bias, rest), target="cuda:90")
    config = bound.config_spec.forms()["multiply_add_roles"].default_config()
    found = run(
        exact_with_additions, (x, y, bias, rest), config.updated(structure="multiply_add_roles")
    )
    wanted = x.double() @ y.double() + bias.double() + rest.double()
    check_against(found, wanted, reduction_length=42)


def test_plain_calls_run_too() -> None:
    """Also their gradients; afterwards they run on the CPU again."""
    kernel = tilesmith.kernel(softmax.fn)
    x = torch.randn(3, 7, requires_grad=True)
    with (
        running_ptx(),
        calls_for_a_gpu(),
        mock.patch.object(Launcher, "launch", autospec=True, side_effect=Launcher.launch) as launch,
    ):
        kernel(x).square().sum().backward()
    assert launch.call_count >= 2
    found = x.grad
    x.grad = None
    kernel(x).square().sum().backward()
    torch.testing.assert_close(found, x.grad)
