# type: ignore
"""Lengths that ``hl.jagged_tile`` cannot use, and values without their axes."""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.errors.case import Case, matrix
from tilesmith import exc


@helion.kernel
def outermost(x, lengths):
    out = torch.empty_like(x)
    for u in hl.jagged_tile(lengths):
        out[0, u] = x[0, u]
    return out


@helion.kernel
def host_tensor_as_lengths(x, lengths):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        for u in hl.jagged_tile(lengths):
            out[t, u] = x[t, u]
    return out


@helion.kernel
def number_as_lengths(x, lengths):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        for u in hl.jagged_tile(4):
            out[t, u] = x[t, u]
    return out


@helion.kernel
def scalar_as_lengths(x, lengths):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        for u in hl.jagged_tile(lengths[0]):
            out[t, u] = x[t, u]
    return out


@helion.kernel
def floats_as_lengths(x, lengths):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        for u in hl.jagged_tile(x[t, 0]):
            out[t, u] = x[t, u]
    return out


@helion.kernel
def lengths_of_all_rows(x, lengths):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        for u in hl.jagged_tile(lengths[:]):
            out[t, u] = x[t, u]
    return out


@helion.kernel
def store_without_rows(x, lengths):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        for u in hl.jagged_tile(lengths[t]):
            out[0, u] = x[0, u]
    return out


@helion.kernel
def sum_without_rows(x, lengths):
    out = torch.empty_like(x[:, 0])
    for t in hl.tile(x.size(0)):
        acc = hl.zeros([t])
        for u in hl.jagged_tile(lengths[t]):
            acc = acc + x[0, u].sum()
        out[t] = acc
    return out


ROWS = (matrix(), torch.arange(8))

CASES = [
    Case(outermost, exc.InvalidJaggedTileUsage, ROWS),
    Case(host_tensor_as_lengths, exc.InvalidJaggedTileUsage, ROWS),
    Case(number_as_lengths, exc.InvalidJaggedTileUsage, ROWS),
    Case(scalar_as_lengths, exc.InvalidJaggedTileUsage, ROWS),
    Case(floats_as_lengths, exc.InvalidJaggedTileUsage, ROWS),
    Case(lengths_of_all_rows, exc.InvalidJaggedTileUsage, ROWS),
    Case(store_without_rows, exc.InvalidJaggedTileUsage, ROWS),
    Case(sum_without_rows, exc.InvalidJaggedTileUsage, ROWS),
]
