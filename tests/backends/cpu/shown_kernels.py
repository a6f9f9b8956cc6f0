"""Kernels whose plans have every kind of step, for tests of the text that shows plans."""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl


@helion.kernel
def halve_and_count(x: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for row in hl.grid(x.size(0)):
        values = x[row, :]
        peak = values.amax(-1)
        steps = hl.zeros([], dtype=torch.int32)
        while peak > 1.0:
            peak = peak * 0.5
            steps = steps + 1
        if steps > 3:
            out[row, :] = values * peak
        else:
            out[row, :] = torch.cumsum(values, 0)
        hl.atomic_add(counts, [steps], 1)
    return out


@helion.kernel
def chase(links: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        place = links[0]
        sums = x[tile]
        while links[place] != 0:
            if links[place] > 5:
                sums = torch.sqrt(sums)
            place = links[place]
        out[tile] = sums
    return out


@helion.kernel
def scatter_counts(labels: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    before = torch.empty_like(labels)
    for tile in hl.tile(labels.size(0)):
        found = labels[tile]
        before[tile] = hl.atomic_add(counts, [found], 1, sem="acq_rel")
    return before


@helion.kernel
def flags_and_positions(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    largest = torch.empty([x.size(0)], dtype=torch.int64, device=x.device)
    has_any = torch.empty([x.size(1)], dtype=torch.bool, device=x.device)
    for tile in hl.tile(x.size(0)):
        largest[tile] = torch.argmax(x[tile, :], 1)
    for tile in hl.tile(x.size(1)):
        has_any[tile] = torch.any(x[:, tile] > 2.0, 0)
    return largest, has_any


@helion.kernel
def running_sums(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile, :] = hl.cumsum(x[tile, :] * 2.0, 1, reverse=True)
    return out


@helion.kernel
def pair_up(x: torch.Tensor) -> torch.Tensor:
    m, n = x.size()
    n = hl.specialize(n)
    out = torch.empty([m, n // 2], dtype=x.dtype, device=x.device)
    for tile in hl.tile(m):
        pairs = x[tile, :].reshape(tile, n // 2, 2)
        out[tile, :] = pairs.sum(-1)
    return out


@helion.kernel
def fibonacci(x: torch.Tensor, steps: int) -> torch.Tensor:
    out = torch.empty_like(x)
    for row in hl.grid(x.size(0)):
        before = hl.zeros([], dtype=torch.float32)
        now = x[row]
        for _ in range(2, steps, 3):
            before, now = now, before + now
        out[row] = now
    return out


@helion.kernel
def count_visible(x: torch.Tensor, seen: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    for tile_m, tile_n in hl.tile([x.size(0), x.size(1)]):
        values = x[tile_m, tile_n]
        is_seen = seen[tile_m][:, None] & (values > 0.5)
        hl.store(x, [tile_m, tile_n], -values, extra_mask=is_seen)
        hl.atomic_max(counts, [tile_n], values.amax(0))
    return counts


def first_of_equals(left, right):
    is_left = left[0] >= right[0]
    return torch.where(is_left, left[0], right[0]), torch.where(is_left, left[1], right[1])


@helion.kernel
def combine_rows_and_columns(x: torch.Tensor, decay: float) -> tuple[torch.Tensor, torch.Tensor]:
    places = torch.empty([x.size(0)], dtype=torch.int64, device=x.device)
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        row = x[tile, :]
        index = hl.arange(x.size(1), dtype=torch.int64)[None, :].expand_as(row)
        _, places[tile] = hl.reduce(first_of_equals, (row, index), 1, (float("-inf"), 0))
        out[tile, :] = hl.associative_scan(lambda a, b: a * decay + b, row, 0, reverse=True)
    return places, out
