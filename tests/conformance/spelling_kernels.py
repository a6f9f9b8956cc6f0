"""Spellings of the language that mean what other spellings mean."""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.conformance.case import EXACT, Case, blocks, randn


@helion.kernel
def functions_of_tiles(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0), 5], dtype=torch.int64, device=x.device)
    for t in hl.tile(x.size(0), block_size=8):
        out[t, 0] = hl.tile_index(t)
        out[t, 1] = hl.full([t], hl.tile_id(t), dtype=torch.int64)
        out[t, 2] = hl.full([t], hl.tile_begin(t), dtype=torch.int64)
        out[t, 3] = hl.full([t], hl.tile_end(t), dtype=torch.int64)
        out[t, 4] = hl.full([t], hl.tile_block_size(t) * t.count, dtype=torch.int64)
    return out


def _functions_of_tiles(x: torch.Tensor) -> torch.Tensor:
    index = torch.arange(x.size(0))
    begin = index // 8 * 8
    count = 8 * -(-x.size(0) // 8)
    ends = torch.clamp(begin + 8, max=x.size(0))
    return torch.stack([index, index // 8, begin, ends, torch.full_like(index, count)], 1)


@helion.kernel
def block_sizes_by_position(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(x)
    for t, u in hl.tile([1, 2], [x.size(0), x.size(1)], [4, 8]):
        out[t, u] = x[t, u] * 2
    return out


def _from_1_and_2(x: torch.Tensor) -> torch.Tensor:
    expected = torch.zeros_like(x)
    expected[1:, 2:] = x[1:, 2:] * 2
    return expected


@helion.kernel
def ranges_of_numbers(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        positions = hl.arange(t.begin, t.begin + t.block_size)
        inside = hl.arange(t) - hl.arange(0, t.block_size, dtype=torch.int32)
        steps = hl.arange(1, 9, 2, dtype=torch.int64)
        out[t] = x[t] + positions + inside + steps.sum()
    return out


@helion.kernel
def values_of_static_sequences(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        listed = [3, 1, 2]
        quotient, rest = divmod(7, 2)
        named = {"once": x[t], "twice": x[t] * 2}
        weights = {name: n for name, n in zip(("a", "b"), (1, 2))}
        total: torch.Tensor = named["once"] + named["twice"]
        is_meant = any([False, True]) and all([1 < quotient <= 3, True])
        for position, n in enumerate(sorted(listed)):
            total = total + n * position
        factor = sum(c for c in (1, 2)) + len(listed) + quotient - rest + weights["b"]
        out[t] = total * factor if is_meant else x[t]
    return out


@helion.kernel
def steps_that_are_written_out(x: torch.Tensor, n: int) -> torch.Tensor:
    rows, columns = hl.specialize((x.size(0), x.size(1)))
    stride, times = hl.specialize(x.stride(0)), hl.specialize(n)
    out = torch.empty([rows, columns], dtype=x.dtype, device=x.device)
    for t in hl.tile(rows):
        total = hl.zeros([t, columns])
        for i in hl.static_range(1, 7, 2):
            total = total + x[t, :] * i
        for _ in hl.static_range(times):
            total = total + stride
        out[t, :] = total
    return out


@helion.kernel
def values_chosen_at_run_time(x: torch.Tensor, limit: float) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0), block_size=8):
        is_large = x[t].abs().amax() > limit
        doubled = x[t]
        doubled.mul_(2)
        kept = x[t] if t.begin >= 0 else x[t] + 1
        if not is_large:
            out[t] = kept
        else:
            out[t] = doubled
    return out


@helion.kernel
def whole_by_slice_objects(x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0)], dtype=x.dtype, device=x.device)
    for t in hl.tile(x.size(0)):
        row = hl.load(x, [t, slice(None)], eviction_policy="evict_first") * weights[()]
        column = hl.subscript(row.amax(1), [slice(None), None])
        hl.store(out, [t], column.squeeze(1) * hl.load(weights, []), extra_mask=t.index >= 0)
    return out


SPELLINGS: tuple[Case, ...] = (
    Case(
        "functions_of_tiles", functions_of_tiles, lambda: (randn(37),), _functions_of_tiles,
        helion.Config(), EXACT,
    ),
    Case(
        "block_sizes_by_position", block_sizes_by_position, lambda: (randn(9, 21),), _from_1_and_2,
        helion.Config(), EXACT,
    ),
    Case(
        "ranges_of_numbers", ranges_of_numbers, lambda: (torch.arange(37.0),),
        lambda x: x + x + 16, blocks(8), EXACT,
    ),
    Case(
        "values_of_static_sequences", values_of_static_sequences, lambda: (torch.arange(37.0),),
        lambda x: (3 * x + 8) * 10, blocks(8), EXACT,
    ),
    Case(
        "steps_that_are_written_out", steps_that_are_written_out,
        lambda: (torch.arange(45.0).view(9, 5), 2), lambda x, n: x * 9 + n * 5, blocks(4), EXACT,
    ),
    Case(
        "values_chosen_at_run_time", values_chosen_at_run_time,
        lambda: (torch.arange(37.0), 20.0), lambda x, limit: torch.where(x < 16, x, 2 * x),
        helion.Config(), EXACT,
    ),
    Case(
        "whole_by_slice_objects", whole_by_slice_objects,
        lambda: (randn(9, 12), torch.tensor(2.0)), lambda x, w: x.amax(1) * 4, blocks(4), EXACT,
    ),
)  # fmt: skip
