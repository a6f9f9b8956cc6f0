"""Loads and stores at positions that come from memory: native code against torch's indexing."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.host_backends import BACKENDS, lanes, on_backend

W = lanes()
LENGTHS = (1, W - 1, W, W + 1, 53)
DTYPES = (
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.float8_e5m2,
    torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool,
)  # fmt: skip

backends = pytest.mark.parametrize("backend", BACKENDS)


def run(kernel: Any, args: tuple[Any, ...], backend: str, *blocks: int, **settings: Any) -> Any:
    bound = on_backend(kernel, backend, **settings).bind(args)
    return bound.compile_config(helion.Config(block_sizes=list(blocks)))(*args)


def values_of(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    count = torch.Size(shape).numel()
    return (torch.arange(count) * 7 % 31 - (dtype.is_signed * 9)).view(shape).to(dtype)


def same(actual: torch.Tensor, expected: torch.Tensor) -> bool:
    """Equal bits; torch compares no floats of 8 bits."""
    if actual.element_size() == 1:
        actual, expected = actual.view(torch.uint8), expected.view(torch.uint8)
    return torch.equal(actual, expected)


@helion.kernel
def elements(x, at):
    out = torch.empty([at.size(0)], dtype=x.dtype, device=x.device)
    for t in hl.tile(at.size(0)):
        out[t] = x[at[t]]
    return out


@helion.kernel
def rows(x, at):
    out = torch.empty([at.size(0), x.size(1)], dtype=x.dtype, device=x.device)
    for t, u in hl.tile(out.size()):
        out[t, u] = x[at[t], u]
    return out


@helion.kernel
def columns(x, at):
    out = torch.empty([x.size(0), at.size(0)], dtype=x.dtype, device=x.device)
    for t, u in hl.tile(out.size()):
        out[t, u] = x[t, at[u]]
    return out


@helion.kernel
def grid_of_both(x, at_rows, at_columns):
    out = torch.empty([at_rows.size(0), at_columns.size(0)], dtype=x.dtype, device=x.device)
    for t, u in hl.tile(out.size()):
        out[t, u] = x[at_rows[t], at_columns[u]]
    return out


@helion.kernel
def chained(x, first, second):
    out = torch.empty([first.size(0)], dtype=x.dtype, device=x.device)
    for t in hl.tile(first.size(0)):
        out[t] = x[second[first[t]]] + x[first[second[first[t]]]]
    return out


@helion.kernel
def masked(x, at, other):
    out = torch.empty([at.size(0)], dtype=x.dtype, device=x.device)
    for t in hl.tile(at.size(0)):
        place = at[t]
        is_inside = (place >= 0) & (place < x.size(0))
        out[t] = torch.where(is_inside, hl.load(x, [place], extra_mask=is_inside), other)
    return out


@helion.kernel
def put(target, at, value):
    for t in hl.tile(at.size(0)):
        target[at[t]] = value[t]


@helion.kernel
def put_some(target, at, value):
    for t in hl.tile(at.size(0)):
        place = at[t]
        is_inside = (place >= 0) & (place < target.size(0))
        hl.store(target, [place], value[t], extra_mask=is_inside)


@helion.kernel
def put_rows(target, at, value):
    for t in hl.tile(at.size(0)):
        target[at[t], :] = value[t, :] * 2


@helion.kernel
def sums_of_rows(x, at, starts):
    out = torch.empty([starts.size(0) - 1, x.size(1)], dtype=x.dtype, device=x.device)
    for i in hl.grid(starts.size(0) - 1):
        for u in hl.tile(x.size(1)):
            total = hl.zeros([u], dtype=x.dtype)
            for s in hl.tile(starts[i], starts[i + 1]):
                total = total + x[at[s], u].sum(0)
            out[i, u] = total
    return out


@helion.kernel
def at_the_label(x, labels):
    out = torch.empty([x.size(0)], dtype=x.dtype, device=x.device)
    for t in hl.tile(x.size(0)):
        row = x[t, :]
        chosen = torch.where(hl.arange(x.size(1))[None, :] == labels[t][:, None], row, 0)
        out[t] = chosen.sum(1) - row.amax(1)
    return out


@backends
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_element_type(dtype: torch.dtype, backend: str) -> None:
    x = values_of(dtype, 37)
    at = torch.arange(53) * 11 % 37
    assert same(run(elements, (x, at), backend, 16), x[at])
    square = values_of(dtype, 9, 37)
    assert same(run(rows, (square, at % 9), backend, 4, 16), square[at % 9])
    assert same(run(columns, (square, at), backend, 4, 16), square[:, at])
    place = torch.randperm(37, generator=torch.Generator().manual_seed(0))
    target = torch.zeros(37, dtype=dtype)
    run(put, (target, place, x), backend, 16)
    assert same(target[place], x)


@backends
@pytest.mark.parametrize(
    "kind", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64], ids=str
)
@pytest.mark.parametrize("length", LENGTHS)
def test_every_index_type(length: int, kind: torch.dtype, backend: str) -> None:
    x = values_of(torch.float32, 100)
    at = (torch.arange(length) * 37 % 100).to(kind)
    for static_shapes in (True, False):
        found = run(elements, (x, at), backend, 8, static_shapes=static_shapes)
        assert torch.equal(found, x[at.long()])


@backends
@pytest.mark.parametrize("across", LENGTHS)
@pytest.mark.parametrize("down", LENGTHS)
def test_both_axes_at_once(down: int, across: int, backend: str) -> None:
    x = values_of(torch.float32, 23, 29)
    first, second = torch.arange(down) * 7 % 23, torch.arange(across) * 5 % 29
    expected = x[first][:, second]
    assert torch.equal(run(grid_of_both, (x, first, second), backend, 4, 16), expected)
    turned = x.t().contiguous().t()
    assert torch.equal(run(grid_of_both, (turned, first, second), backend, 16, 4), expected)


@backends
@pytest.mark.parametrize("length", LENGTHS)
def test_positions_found_through_positions(length: int, backend: str) -> None:
    x, count = values_of(torch.int64, length), torch.arange(length)
    first, second = (count * 3 + 1) % length, (count * 5 + 2) % length
    expected = x[second[first]] + x[first[second[first]]]
    assert torch.equal(run(chained, (x, first, second), backend, 16), expected)


@backends
@pytest.mark.parametrize("length", LENGTHS)
def test_positions_outside_are_not_touched(length: int, backend: str) -> None:
    # Far outside: touching one of them would end the process.
    at = torch.arange(length) * 3 - 8
    at[::5] = 2**45
    at[2::5] = -(2**45)
    x = values_of(torch.float32, 40)
    is_inside = (at >= 0) & (at < 40)
    expected = torch.where(is_inside, x[at.clamp(0, 39)], -1.5)
    assert torch.equal(run(masked, (x, at, -1.5), backend, 16), expected)
    target, value = torch.zeros(40), torch.arange(1.0, length + 1)
    run(put_some, (target, at, value), backend, 16)
    wanted = torch.zeros(40)
    wanted[at[is_inside]] = value[is_inside]
    assert torch.equal(target, wanted)


@backends
@pytest.mark.parametrize("width", LENGTHS)
def test_rows_are_put_where_told(width: int, backend: str) -> None:
    place = torch.tensor([6, 2, 0, 9, 5, 1])
    target, value = torch.zeros(11, width), values_of(torch.float32, 6, width)
    run(put_rows, (target, place, value), backend, 4)
    wanted = torch.zeros(11, width)
    wanted[place] = value * 2
    assert torch.equal(target, wanted)


@backends
@pytest.mark.parametrize("width", LENGTHS)
def test_sums_of_gathered_rows(width: int, backend: str) -> None:
    x = values_of(torch.int64, 31, width)
    at = torch.arange(60) * 13 % 31
    starts = torch.tensor([0, 0, 1, 17, 18, 60])
    found = run(sums_of_rows, (x, at, starts), backend, 16, 8)
    for i in range(5):
        assert torch.equal(found[i], x[at[starts[i] : starts[i + 1]]].sum(0))


@backends
@pytest.mark.parametrize("width", LENGTHS)
def test_a_label_in_every_row(width: int, backend: str) -> None:
    x = values_of(torch.float32, 7, width)
    labels = torch.arange(7) * 3 % width
    found = run(at_the_label, (x, labels), backend, 4)
    assert torch.equal(found, x[torch.arange(7), labels] - x.amax(1))
