"""Random numbers and scans of native code: the interpreter's bits, on every kind of vectors."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.host_backends import OLDER_TARGETS, lanes, on_backend
from tilesmith.numerics.inputs import random_tensor

W = lanes()
LENGTHS = (1, W - 1, W, W + 1, 4 * W + 1, 53)
MACHINES = [pytest.param(None, id="host"), *OLDER_TARGETS]


def run(kernel: Any, args: tuple[Any, ...], target: str | None, *blocks: int) -> Any:
    # Sizes known at run time only: one compilation for all lengths.
    bound = on_backend(kernel, "cpu", static_shapes=False).bind(args, target=target)
    return bound.compile_config(helion.Config(block_sizes=list(blocks)))(*args)


@helion.kernel
def numbers(x, seed: int):
    uniform, whole = torch.empty_like(x), torch.empty(x.shape, dtype=torch.int32)
    for t, u in hl.tile(x.shape):
        uniform[t, u] = hl.rand([t, u], seed)
        whole[t, u] = hl.randint([t, u], -7, 1000, seed + 1)
    return uniform, whole


@helion.kernel
def dropped_out(x, share: float, seed: int):
    out, sums = torch.empty_like(x), torch.empty([x.size(0)])
    for t in hl.tile(x.size(0)):
        row = x[t, :]
        kept = torch.where(hl.rand([t, x.size(1)], seed) >= share, row, 0.0)
        out[t, :] = kept
        sums[t] = (kept != 0).sum(1)
    return out, sums


@pytest.mark.parametrize("target", MACHINES)
@pytest.mark.parametrize("length", LENGTHS)
def test_random_numbers(length: int, target: str | None) -> None:
    x = torch.empty(5, length)
    for seed in (0, 2**63 - 5):
        expected = on_backend(numbers, "reference")(x, seed)
        for blocks in ((4, 16), (1, 64)):
            found = run(numbers, (x, seed), target, *blocks)
            assert all(map(torch.equal, found, expected))


@pytest.mark.parametrize("target", MACHINES)
@pytest.mark.parametrize("length", LENGTHS)
def test_the_same_numbers_in_every_nest_that_needs_them(length: int, target: str | None) -> None:
    x = random_tensor((5, length), torch.float32)
    expected = on_backend(dropped_out, "reference")(x, 0.4, 11)
    found = run(dropped_out, (x, 0.4, 11), target, 4)
    assert all(map(torch.equal, found, expected))
    assert torch.equal(found[1], (found[0] != 0).sum(1).float())


@helion.kernel
def scanned(x, fn, out):
    for t in hl.tile(x.size(0)):
        out[t, :] = fn(x[t, :])


SCANS = {
    "sum": lambda x: hl.cumsum(x, 1),
    "sum_back": lambda x: hl.cumsum(x, 1, reverse=True),
    "product": lambda x: hl.cumprod(x, 1),
    "largest": lambda x: hl.associative_scan(torch.maximum, x, 1),
    "smallest_back": lambda x: hl.associative_scan(torch.minimum, x, 1, reverse=True),
    "largest_places": lambda x: torch.cummax(x, 1).indices,
}
EXACT_TYPES = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def scan_on(backend: str, name: str, x: torch.Tensor, target: str | None = None) -> torch.Tensor:
    dtype = torch.int64 if name == "largest_places" else x.dtype
    out = torch.zeros(x.shape, dtype=dtype)
    args = (x, SCANS[name], out)
    bound = on_backend(scanned, backend, static_shapes=False).bind(args, target=target)
    bound.compile_config(helion.Config(block_sizes=[2]))(*args)
    return out


@pytest.mark.parametrize("dtype", EXACT_TYPES, ids=str)
@pytest.mark.parametrize("name", SCANS)
def test_scans_of_integers(name: str, dtype: torch.dtype) -> None:
    for length in LENGTHS:
        x = random_tensor((3, length), dtype)
        assert torch.equal(scan_on("cpu", name, x), scan_on("reference", name, x))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", ["largest", "smallest_back", "largest_places"])
def test_scans_that_do_not_round(name: str, dtype: torch.dtype) -> None:
    for length in LENGTHS:
        x = random_tensor((3, length), dtype)
        x[1, length // 2] = float("nan")
        x[2, 0] = float("-inf")
        found, expected = scan_on("cpu", name, x), scan_on("reference", name, x)
        torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("target", MACHINES)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_sums_are_those_of_a_plain_loop(dtype: torch.dtype, target: str | None) -> None:
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    for length in LENGTHS:
        x = random_tensor((3, length), dtype)
        total, expected = torch.zeros(3, dtype=wide), torch.empty_like(x)
        for column in range(length):
            total = total + x[:, column]
            expected[:, column] = total.to(dtype)
        assert torch.equal(scan_on("cpu", "sum", x, target), expected)
