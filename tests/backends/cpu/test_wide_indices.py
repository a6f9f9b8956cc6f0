"""Positions that 32 bits do not hold: far apart in memory, far along an axis, or both.

Memory that nobody touches costs nothing, so a few rows lie billions of elements apart.
"""

from __future__ import annotations

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.host_backends import BACKENDS, lanes, on_backend

W = lanes()
FAR = 2**30
LENGTHS = (1, W - 1, W, W + 1, 53)

pytestmark = pytest.mark.parametrize("backend", BACKENDS)
shapes = pytest.mark.parametrize("static_shapes", [True, False])


@pytest.fixture(scope="module")
def storage() -> torch.Tensor:
    try:
        return torch.empty(2 * FAR + 2**16, dtype=torch.uint8)
    except RuntimeError:
        pytest.skip("this system gives no 2 GiB of address space")


def far_rows(storage: torch.Tensor, columns: int, start: int = 0) -> torch.Tensor:
    """Three rows; the last begins beyond 2^31."""
    rows = torch.as_strided(storage, (3, columns), (FAR, 1), start)
    rows.copy_((torch.arange(3 * columns) * 7 % 251).view(3, columns))
    return rows


@helion.kernel
def doubled(x, out):
    for t, u in hl.tile(x.size()):
        out[t, u] = x[t, u] * 2


@helion.kernel
def row_sums(x, out):
    for t in hl.tile(x.size(0)):
        out[t] = x[t, :].to(torch.int64).sum(1)


@helion.kernel
def column_sums(x, out):
    for u in hl.tile(x.size(1)):
        out[u] = x[:, u].to(torch.int64).sum(0)


@helion.kernel
def gathered(x, rows, columns, out):
    for t, u in hl.tile(out.size()):
        out[t, u] = x[rows[t], columns[u]]


@helion.kernel
def scattered(x, rows, columns, values):
    for t, u in hl.tile(values.size()):
        x[rows[t], columns[u]] = values[t, u]


@helion.kernel
def counted(x, rows):
    for t in hl.tile(rows.size(0)):
        hl.atomic_add(x, [rows[t], 3], 1)


def run(kernel, args, backend: str, *blocks: int, static_shapes: bool = True) -> None:
    bound = on_backend(kernel, backend, static_shapes=static_shapes).bind(args)
    bound.compile_config(helion.Config(block_sizes=list(blocks)))(*args)


@shapes
@pytest.mark.parametrize("columns", LENGTHS)
def test_rows_far_apart(storage, columns: int, static_shapes: bool, backend: str) -> None:
    x, out = far_rows(storage, columns), far_rows(storage, columns, 1000)
    out.zero_()
    run(doubled, (x, out), backend, 2, 16, static_shapes=static_shapes)
    assert torch.equal(out, x * 2)
    sums, small = torch.zeros(3, dtype=torch.int64), x.contiguous().long()
    run(row_sums, (x, sums), backend, 2, static_shapes=static_shapes)
    assert torch.equal(sums, small.sum(1))
    sums = torch.zeros(columns, dtype=torch.int64)
    run(column_sums, (x, sums), backend, 8, static_shapes=static_shapes)
    assert torch.equal(sums, small.sum(0))


@shapes
def test_lanes_far_apart(storage, static_shapes: bool, backend: str) -> None:
    # Lanes go across rows: each one's position needs 64 bits.
    x = far_rows(storage, 53).t()
    out = torch.zeros(53, 3, dtype=torch.uint8)
    run(doubled, (x, out), backend, 4, 4, static_shapes=static_shapes)
    assert torch.equal(out, x * 2)


@shapes
def test_gathers_and_scatters_far_apart(storage, static_shapes: bool, backend: str) -> None:
    x = far_rows(storage, 53)
    rows, columns = torch.tensor([2, 0, 1, 2]), torch.arange(61) * 11 % 53
    for kind in (torch.int64, torch.int32):
        out = torch.zeros(4, 61, dtype=torch.uint8)
        args = (x, rows.to(kind), columns, out)
        run(gathered, args, backend, 2, 16, static_shapes=static_shapes)
        assert torch.equal(out, x[rows][:, columns])
    rows, columns = torch.tensor([2, 0]), torch.arange(0, 53, 2)
    values = (torch.arange(54) * 3).to(torch.uint8).view(2, 27)
    run(scattered, (x, rows, columns, values), backend, 2, 16, static_shapes=static_shapes)
    assert torch.equal(x[rows][:, columns], values)


def test_atomics_far_apart(storage, backend: str) -> None:
    x = far_rows(storage, 53)
    x.zero_()
    run(counted, (x, torch.arange(30) % 3), backend, 8)
    assert x[:, 3].tolist() == [10, 10, 10]
    assert int(x.sum()) == 30


@helion.kernel
def from_there_on(x, start: int, out):
    for t in hl.tile(start, start + out.size(0)):
        out[t.index - start] = x[t, 1] + t.index % 1000


@pytest.mark.parametrize("start", [2**31 - 5, 2**31, 2**32 - 3, 2**40])
def test_positions_beyond_32_bits_along_one_axis(start: int, backend: str) -> None:
    # A stride of 0: all rows are one and the same.
    x = torch.tensor([5, 70, 900]).expand(2**41, 3)
    out = torch.zeros(37, dtype=torch.int64)
    run(from_there_on, (x, start, out), backend, 16)
    assert torch.equal(out, 70 + torch.arange(start, start + 37) % 1000)


@helion.kernel
def looked_up(x, rows, out):
    for t in hl.tile(rows.size(0)):
        out[t, :] = x[rows[t], :]


@shapes
def test_rows_of_an_expanded_tensor(static_shapes: bool, backend: str) -> None:
    row = torch.arange(19.0)
    rows = torch.tensor([0, 2**31, 2**33 + 1, 5, 2**40])
    out = torch.zeros(5, 19)
    args = (row.expand(2**41, 19), rows, out)
    run(looked_up, args, backend, 4, static_shapes=static_shapes)
    assert torch.equal(out, row.expand(5, 19))
    single = torch.tensor([7.0]).expand(2**31, 2**31)
    out = torch.zeros(5, 19)
    run(doubled, (single[2**30 : 2**30 + 5, -19:], out), backend, 4, 8, static_shapes=static_shapes)
    assert torch.equal(out, torch.full((5, 19), 14.0))


@helion.kernel
def converted(x, out):
    for t in hl.tile(x.size(0)):
        at = t.index
        out[0, t] = (at * 100_000).to(torch.int64)
        out[1, t] = (at * 100_000 + 7).to(torch.int64) + at
        out[2, t] = (at - 5).to(torch.uint32).to(torch.int64)
        out[3, t] = (at.to(torch.int64) * 3_000_000_019).to(torch.int32)
        out[4, t] = (at.to(torch.int64) * 3_000_000_019).to(torch.int32).to(torch.int64) * 2
        out[5, t] = (-(at * 1_000_003) - at).to(torch.int64) % 1000
        out[6, t] = (at * 77).to(torch.int8).to(torch.int64)
        out[7, t] = x[(at * 100_000).to(torch.int64) % x.size(0)]


def test_arithmetic_on_positions_wraps_in_its_own_type(backend: str) -> None:
    x = torch.arange(50_000) * 3
    out = torch.zeros(8, 50_000, dtype=torch.int64)
    run(converted, (x, out), backend, 4096)
    at = torch.arange(50_000, dtype=torch.int32)
    scaled = at.long() * 3_000_000_019
    expected = [
        (at * 100_000).long(),
        (at * 100_000 + 7).long() + at,
        (at.long() - 5) % 2**32,
        scaled.int().long(),
        scaled.int().long() * 2,
        (-(at * 1_000_003) - at).long() % 1000,
        (at * 77).to(torch.int8).long(),
        x[(at * 100_000).long() % 50_000],
    ]
    for row, wanted in zip(out, expected, strict=True):
        assert torch.equal(row, wanted)
