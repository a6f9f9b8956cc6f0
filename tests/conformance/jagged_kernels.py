"""Loops to lengths that differ from lane to lane: ``hl.jagged_tile``."""

from __future__ import annotations

import itertools
from typing import Any

import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.conformance.case import EXACT, Case, blocks, randn

LENGTHS = (3, 0, 7, 1, 12, 5, 0, 9, 2, 4, 11)
COUNTS = ((2, 0, 3), (1, 5, 0), (0, 0, 0), (4, 1, 2), (3, 3, 6))


def flat_rows() -> tuple[torch.Tensor, torch.Tensor]:
    """Values of all rows one after the other, and where each begins."""
    return randn(sum(LENGTHS)), torch.tensor([0, *itertools.accumulate(LENGTHS)])


def padded_rows() -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of the greatest length with more data past their ends, and their lengths."""
    return randn(len(LENGTHS), 13), torch.tensor(LENGTHS)


def rows_of_features() -> tuple[torch.Tensor, torch.Tensor]:
    """A third axis of features behind the jagged one."""
    return randn(len(LENGTHS), 13, 6), torch.tensor(LENGTHS)


def short_rows() -> tuple[torch.Tensor, torch.Tensor]:
    """No row longer than the tile, none empty."""
    return randn(9, 13), torch.tensor([3, 1, 7, 8, 2, 5, 8, 4, 6])


def cells() -> tuple[torch.Tensor, torch.Tensor]:
    """A length for each cell of a table."""
    return randn(5, 3, 7), torch.tensor(COUNTS)


def _rows(values: torch.Tensor, offsets: torch.Tensor) -> list[torch.Tensor]:
    return [values[a:b].double() for a, b in itertools.pairwise(offsets)]


@helion.kernel
def jagged_sum(values: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    rows = offsets.size(0) - 1
    out = torch.empty([rows], dtype=torch.float32, device=values.device)
    for tb in hl.tile(rows):
        first = offsets[tb]
        lens = offsets[tb.index + 1] - first
        acc = hl.zeros([tb], dtype=torch.float32)
        for tj in hl.jagged_tile(lens):
            acc = acc + values[first[:, None] + tj.index[None, :]].sum(dim=1)
        out[tb] = acc
    return out


@helion.kernel
def jagged_after_pointwise(x: torch.Tensor, lengths: torch.Tensor) -> Any:
    """Lanes past a length hold 1 after the exponential, and must not count all the same."""
    total = torch.empty([x.size(0)], dtype=torch.float32, device=x.device)
    peak = torch.empty_like(total)
    for tb in hl.tile(x.size(0)):
        lens = lengths[tb]
        acc = hl.zeros([tb], dtype=torch.float32)
        top = hl.full([tb], float("-inf"), dtype=torch.float32)
        for tj in hl.jagged_tile(lens):
            v = x[tb, tj]
            acc = acc + torch.exp(v).sum(1)
            top = torch.maximum(top, (v * v + 1).amax(1))
        total[tb] = acc
        peak[tb] = top
    return total, peak


@helion.kernel
def jagged_mean_and_var(x: torch.Tensor, lengths: torch.Tensor) -> Any:
    means = torch.empty([x.size(0)], dtype=torch.float32, device=x.device)
    variances = torch.empty_like(means)
    for tb in hl.tile(x.size(0)):
        for tj in hl.jagged_tile(lengths[tb]):
            v = x[tb, tj] + 2.0
            means[tb] = v.mean(1)
            variances[tb] = v.var(1, correction=0)
    return means, variances


@helion.kernel
def jagged_store(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    out = torch.full_like(x, -7.0)
    for tb in hl.tile(x.size(0)):
        for tj in hl.jagged_tile(lengths[tb]):
            out[tb, tj] = x[tb, tj] + 1.0
    return out


@helion.kernel
def jagged_histogram(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """How many rows reach each column."""
    out = torch.zeros([x.size(1)], dtype=torch.int32, device=x.device)
    for tb in hl.tile(x.size(0)):
        for tj in hl.jagged_tile(lengths[tb]):
            columns = tj.index[None, :] + torch.zeros_like(x[tb, tj], dtype=torch.int32)
            hl.atomic_add(out, [columns], 1)
    return out


@helion.kernel
def jagged_sort(x: torch.Tensor, lengths: torch.Tensor) -> Any:
    out = torch.full_like(x, -7.0)
    places = torch.full_like(x, -7, dtype=torch.int64)
    for tb in hl.tile(x.size(0)):
        for tj in hl.jagged_tile(lengths[tb]):
            values, order = torch.sort(x[tb, tj], dim=1, descending=True)
            out[tb, tj] = values
            places[tb, tj] = order
    return out, places


def _sorted_rows(x: torch.Tensor, lengths: torch.Tensor) -> Any:
    out, places = torch.full_like(x, -7.0), torch.full(x.shape, -7)
    for row, length in enumerate(lengths):
        values, order = torch.sort(x[row, :length], descending=True, stable=True)
        out[row, :length], places[row, :length] = values, order
    return out, places


@helion.kernel
def jagged_features(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """The jagged axis in the middle, its lengths before it, features behind."""
    out = torch.empty([x.size(0), x.size(2)], dtype=torch.float32, device=x.device)
    for tb, tc in hl.tile([x.size(0), x.size(2)]):
        acc = hl.zeros([tb, tc], dtype=torch.float32)
        for tj in hl.jagged_tile(lengths[tb]):
            acc = acc + torch.exp(x[tb, tj, tc]).sum(1)
        out[tb, tc] = acc
    return out


@helion.kernel
def jagged_transposed(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """The jagged axis before that of its lengths."""
    out = torch.empty([x.size(1)], dtype=torch.float32, device=x.device)
    for tb in hl.tile(x.size(1)):
        acc = hl.zeros([tb], dtype=torch.float32)
        for tj in hl.jagged_tile(lengths[tb]):
            acc = acc + torch.exp(x[tj, tb]).sum(0)
        out[tb] = acc
    return out


@helion.kernel
def jagged_product(x: torch.Tensor, lengths: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0), w.size(1)], dtype=torch.float32, device=x.device)
    for tb, tn in hl.tile([x.size(0), w.size(1)]):
        acc = hl.zeros([tb, tn], dtype=torch.float32)
        for tj in hl.jagged_tile(lengths[tb]):
            acc = torch.addmm(acc, torch.exp(x[tb, tj]), w[tj, tn])
        out[tb, tn] = acc
    return out


@helion.kernel
def jagged_suffix_sums(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(x)
    for tb in hl.tile(x.size(0)):
        for tj in hl.jagged_tile(lengths[tb]):
            out[tb, tj] = hl.cumsum(x[tb, tj] + 1.0, dim=1, reverse=True)
    return out


@helion.kernel
def jagged_table(x: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """Lengths of two axes."""
    out = torch.empty([x.size(0), x.size(1)], dtype=torch.float32, device=x.device)
    for ta, tb in hl.tile([x.size(0), x.size(1)]):
        acc = hl.zeros([ta, tb], dtype=torch.float32)
        for tj in hl.jagged_tile(counts[ta, tb]):
            acc = acc + torch.exp(x[ta, tb, tj]).sum(2)
        out[ta, tb] = acc
    return out


@helion.kernel
def jagged_table_reordered(x: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """The axes of the lengths stand in another order in the values."""
    out = torch.empty([x.size(1), x.size(0)], dtype=torch.float32, device=x.device)
    for ta, tb in hl.tile([x.size(0), x.size(1)]):
        acc = hl.zeros([tb, ta], dtype=torch.float32)
        for tj in hl.jagged_tile(counts[ta, tb]):
            v = x[ta, tb, tj].permute(1, 2, 0)
            acc = acc + torch.exp(v).sum(1)
        out[tb, ta] = acc
    return out


@helion.kernel
def jagged_in_jagged(x: torch.Tensor, rows: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """Each of ``rows[a]`` cells of a row has a length of its own."""
    out = torch.empty([x.size(0)], dtype=torch.float32, device=x.device)
    for ta in hl.tile(x.size(0)):
        acc = hl.zeros([ta], dtype=torch.float32)
        for tb in hl.jagged_tile(rows[ta]):
            lens = counts[ta, tb] + 1
            for tj in hl.jagged_tile(lens):
                acc = acc + torch.exp(x[ta, tb, tj]).sum([1, 2])
        out[ta] = acc
    return out


def _valid(shape: torch.Size, lengths: torch.Tensor) -> torch.Tensor:
    return torch.arange(shape[lengths.dim()]) < lengths[..., None]


def _exp_sums(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    return (x.double().exp() * _valid(x.shape, lengths)).sum(-1)


def _pointwise(x: torch.Tensor, lengths: torch.Tensor) -> Any:
    peaks = (x.double() ** 2 + 1).masked_fill(~_valid(x.shape, lengths), float("-inf"))
    return _exp_sums(x, lengths), peaks.amax(1)


def _statistics(x: torch.Tensor, lengths: torch.Tensor) -> Any:
    rows = [row[:n].double() + 2 for row, n in zip(x, lengths.tolist())]
    means = torch.stack([row.mean() for row in rows])
    return means, torch.stack([row.var(correction=0) for row in rows])


def _suffix_sums(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(x, dtype=torch.float64)
    for row, length in enumerate(lengths.tolist()):
        part = x[row, :length].double() + 1
        out[row, :length] = part.flip(0).cumsum(0).flip(0)
    return out


def _in_jagged(x: torch.Tensor, rows: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    kept = _valid(counts.shape, rows)[..., None] & _valid(x.shape, counts + 1)
    return (x.double().exp() * kept).sum((1, 2))


JAGGED: tuple[Case, ...] = (
    Case(
        "jagged sum", jagged_sum, flat_rows,
        lambda v, o: torch.stack([row.sum() for row in _rows(v, o)]), blocks(4, 4), 12,
    ),
    Case(
        "jagged after pointwise", jagged_after_pointwise, padded_rows, _pointwise,
        blocks(4, 8), 12,
    ),
    Case(
        "jagged mean and variance", jagged_mean_and_var, short_rows, _statistics,
        blocks(4, 8), 8, varies_with_blocks=True,
    ),
    Case(
        "jagged store", jagged_store, padded_rows,
        lambda x, n: torch.where(_valid(x.shape, n), x + 1, -7.0), blocks(4, 8), EXACT,
    ),
    Case(
        "jagged histogram", jagged_histogram, padded_rows,
        lambda x, n: _valid(x.shape, n).sum(0).int(), blocks(4, 8), EXACT,
    ),
    Case(
        "jagged features", jagged_features, rows_of_features,
        lambda x, n: _exp_sums(x.transpose(1, 2), n[:, None].expand(-1, 6)), blocks(4, 4, 4), 12,
    ),
    Case(
        "jagged transposed", jagged_transposed,
        lambda: (padded_rows()[0].T.contiguous(), padded_rows()[1]),
        lambda x, n: _exp_sums(x.T, n), blocks(4, 8), 12,
    ),
    Case(
        "jagged product", jagged_product,
        lambda: (*padded_rows(), randn(13, 5)),
        lambda x, n, w: (x.double().exp() * _valid(x.shape, n)) @ w.double(),
        blocks(16, 16, 16), 13,
    ),
    Case(
        "jagged suffix sums", jagged_suffix_sums, short_rows, _suffix_sums,
        blocks(4, 8), 8, varies_with_blocks=True,
    ),
    Case(
        "jagged sort", jagged_sort, short_rows, _sorted_rows,
        blocks(4, 8), EXACT, varies_with_blocks=True, has_small_default=False,
    ),
    Case("jagged table", jagged_table, cells, _exp_sums, blocks(2, 2, 4), 7),
    Case(
        "jagged table reordered", jagged_table_reordered, cells,
        lambda x, n: _exp_sums(x, n).T, blocks(2, 2, 4), 7,
    ),
    Case(
        "jagged in jagged", jagged_in_jagged,
        lambda: (cells()[0], torch.tensor([3, 1, 0, 2, 2]), cells()[1]), _in_jagged,
        blocks(2, 2, 4), 21,
    ),
)  # fmt: skip
