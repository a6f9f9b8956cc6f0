"""Infinities, NaN, numbers that are too large or subnormal: as in eager torch on the same GPU.

Also the programs of the fuzzer's corpus, with their sizes and data.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import tilesmith
import tilesmith.language as hl
from tests.device.chip import DEVICE, MODE
from tests.fuzzing.atomics import expect_device_memory
from tests.fuzzing.execution import judge
from tests.fuzzing.reductions import expect_matrix_units
from tests.fuzzing.saved_programs import read_saved, restored

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
WIDE = [torch.float32, torch.float16, torch.bfloat16]
CORPUS = sorted((Path(__file__).parents[1] / "fuzzing" / "corpus").glob("*.json"))
BITS = {1: torch.uint8, 2: torch.int16}


def every(dtype: torch.dtype) -> torch.Tensor:
    """All numbers of a type; of fp32 all that bf16 has, and their neighbours."""
    if dtype == torch.float32:
        bits = torch.arange(65536)[:, None] * 65536 + torch.tensor([0, 1, 0x8000, 0xFFFF])
        return bits.flatten().to(torch.int32).view(dtype).to(DEVICE)
    size = dtype.itemsize
    return torch.arange(1 << 8 * size).to(BITS[size]).view(dtype).to(DEVICE)


def check_same(found: torch.Tensor, wanted: torch.Tensor) -> None:
    """Equal, or both NaN."""
    left, right = found.double(), wanted.double()
    assert bool(((left == right) | (left.isnan() & right.isnan())).all())


@tilesmith.kernel(static_shapes=True)
def converted(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile].to(out.dtype)
    return out


@pytest.mark.parametrize("narrow", [E4M3, E5M2], ids=str)
@pytest.mark.parametrize("wide", WIDE, ids=str)
def test_conversions_of_eight_bits(wide: torch.dtype, narrow: torch.dtype) -> None:
    for source, target in ((wide, narrow), (narrow, wide)):
        x = every(source)
        check_same(converted(x, torch.zeros_like(x, dtype=target)), x.to(target))


@tilesmith.kernel(static_shapes=True)
def stepped(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    below, above, rest, root = (torch.empty_like(x) for _ in range(4))
    for tile in hl.tile(x.size(0)):
        below[tile] = torch.floor(x[tile])
        above[tile] = torch.ceil(x[tile])
        rest[tile] = x[tile] % 3
        root[tile] = torch.rsqrt(x[tile])
    return below, above, rest, root


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_subnormal_numbers_are_not_zero(dtype: torch.dtype) -> None:
    x = every(dtype)
    functions: list[Callable[[Any], Any]] = [torch.floor, torch.ceil, lambda v: v % 3]
    *exact, root = stepped(x)
    for found, function in zip(exact, functions):
        check_same(found, function(x))
    # Roots may be rounded otherwise.
    wanted = torch.rsqrt(x)
    assert torch.equal(root.isfinite(), wanted.isfinite())


@tilesmith.kernel(
    static_shapes=False,
    config=tilesmith.Config(block_sizes=[32], range_unroll_factors=[0, 4]),
)
def between(x: torch.Tensor, bounds: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(x)
    for row in hl.grid(x.size(0)):
        for tile in hl.tile(bounds[0], bounds[1]):
            out[row, tile] = x[row, tile]
    return out


@pytest.mark.parametrize("bounds", [(90, 27), (27, 90), (99, 0), (50, 50)])
def test_unrolled_loops_that_end_before_they_begin(bounds: tuple[int, int]) -> None:
    x = torch.ones(6, 99, device=DEVICE)
    wanted = torch.zeros_like(x)
    wanted[:, bounds[0] : bounds[1]] = 1
    assert torch.equal(between(x, torch.tensor(bounds, device=DEVICE)), wanted)


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_programs_that_were_wrong_are_right(path: Path) -> None:
    data = read_saved(path)
    if data["mode"] != "host":
        pytest.skip("a program for a CPU")
    expect_matrix_units()
    expect_device_memory()
    failure = judge(restored(data), data["index"], MODE).failure
    assert failure is None, f"{failure.way}: {failure.problem}"
