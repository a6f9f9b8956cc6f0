"""A reduction held whole in registers and one looped over chunks give the same rows."""

from __future__ import annotations

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.conformance.case import blocks, randn
from tests.host_backends import on_backend
from tests.interpreted import run_function
from tests.lowering import schedule_function
from tilesmith.ir.ops.control_flow import Loop
from tilesmith.ir.traversal import walk_function
from tilesmith.numerics.compare import check_against

CHUNKS = {1: None, 13: 8, 16: 8, 1000: 64, 5000: 1024}


@helion.kernel
def row_sum(x: torch.Tensor, out: torch.Tensor) -> None:
    for t in hl.tile(x.size(0)):
        out[t, 0] = (x[t, :] + 1).sum(1)


@helion.kernel
def row_extrema(x: torch.Tensor, out: torch.Tensor) -> None:
    for t in hl.tile(x.size(0)):
        row = x[t, :]
        out[t, 0] = row.amax(1) - row.amin(1)


@helion.kernel
def row_softmax(x: torch.Tensor, out: torch.Tensor) -> None:
    for t in hl.tile(x.size(0)):
        out[t, :] = torch.softmax(x[t, :], 1)


@helion.kernel
def row_variance(x: torch.Tensor, out: torch.Tensor) -> None:
    for t in hl.tile(x.size(0)):
        row = x[t, :].float()
        out[t, 0] = ((row - row.mean(1, keepdim=True)) ** 2).mean(1)


KERNELS = {
    row_sum: lambda x: (x + 1).sum(1, keepdim=True),
    row_extrema: lambda x: x.amax(1, keepdim=True) - x.amin(1, keepdim=True),
    row_softmax: lambda x: torch.softmax(x, 1),
    row_variance: lambda x: x.var(1, correction=0, keepdim=True),
}


def run_form(kernel, x: torch.Tensor, width: int, chunk: int | None) -> tuple[torch.Tensor, int]:
    """Run what the schedule makes of a kernel; also the number of loops in it."""
    out = torch.full((x.size(0), width), -7.0, dtype=x.dtype)
    bound = kernel.bind((x, out), target="cuda:90")
    loops = {} if chunk is None else {"reduction_loops": [chunk]}
    function, schedule = schedule_function(bound.function, bound.config_spec, blocks(4, **loops))
    run_function(function, {"x": x, "out": out}, schedule.symbols)
    return out, sum(isinstance(op, Loop) for op in walk_function(function))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("extent", CHUNKS)
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_both_forms_agree_with_fp64(kernel, extent: int, dtype: torch.dtype) -> None:
    x = randn(5, extent, dtype=dtype)
    expected = KERNELS[kernel](x.double())
    # x + 1 and the difference of the extrema are rounded to bf16 on the way.
    roundings = [dtype] if dtype != torch.float32 else []
    for chunk in dict.fromkeys((None, CHUNKS[extent])):
        result, loops = run_form(kernel, x, expected.size(1), chunk)
        assert (loops > 0) == (chunk is not None)
        check_against(result, expected, reduction_length=max(extent, 2), intermediate=roundings)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("extent", CHUNKS)
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_both_forms_of_native_code_agree_with_fp64(kernel, extent: int, dtype: torch.dtype) -> None:
    x = randn(5, extent, dtype=dtype)
    expected = KERNELS[kernel](x.double())
    roundings = [dtype] if dtype != torch.float32 else []
    out = torch.empty(expected.shape, dtype=dtype)
    bound = on_backend(kernel, "cpu").bind((x, out))
    for chunk in dict.fromkeys((None, CHUNKS[extent])):
        loops = {} if chunk is None else {"reduction_loops": [chunk]}
        bound.compile_config(blocks(4, **loops))(x, out.fill_(-7))
        check_against(out, expected, reduction_length=max(extent, 2), intermediate=roundings)
