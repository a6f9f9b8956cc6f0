"""Mistakes in moving elements: tile axes that are cut, shapes that do not fit, wrong positions."""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.errors.case import Case
from tilesmith import exc

X = (torch.arange(24.0).reshape(4, 6),)


@helion.kernel
def chunks_of_a_tile_axis(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile, :] = x[tile, :].chunk(2, 0)[0]
    return out


@helion.kernel
def flipped_tile_axis(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile, :] = x[tile, :].flip(0)
    return out


@helion.kernel
def slice_of_a_tile_axis(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile, :] = x[tile, :][1:]
    return out


@helion.kernel
def position_out_of_range(x):
    out = torch.empty([x.size(0)])
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile, :][:, 6]
    return out


@helion.kernel
def indexed_with_bools(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        row = x[tile, :]
        out[tile, :] = row[row > 0]
    return out


@helion.kernel
def split_of_three(x):
    out = torch.empty([x.size(0), 2])
    for tile in hl.tile(x.size(0)):
        low, high = hl.split(x[tile, :].reshape(tile, 2, 3))
        out[tile, :] = low + high
    return out


@helion.kernel
def joined_types(x):
    out = torch.empty([x.size(0), 6, 2])
    for tile in hl.tile(x.size(0)):
        out[tile, :, :] = hl.join(x[tile, :], x[tile, :].half())
    return out


@helion.kernel
def joined_shapes(x):
    out = torch.empty([x.size(0), 6, 2])
    for tile in hl.tile(x.size(0)):
        out[tile, :, :] = hl.join(x[tile, :], x[tile, 1:])
    return out


@helion.kernel
def cat_of_different_rows(x):
    out = torch.empty([x.size(0), 6, 2])
    for tile in hl.tile(x.size(0)):
        out[tile, :, :] = torch.cat([x[tile, :, None], x[tile, 1:, None]], 2)
    return out


@helion.kernel
def reshape_that_splits_a_tile_axis(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile, :] = x[tile, :].reshape(2, -1, 6).sum(0)
    return out


@helion.kernel
def positions_of_floats(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile, :] = x[tile, :].gather(1, x[tile, :])
    return out


@helion.kernel
def too_many_of_the_largest(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile, :] = x[tile, :].topk(7).values
    return out


@helion.kernel
def padded_by_reflection(x):
    out = torch.empty([x.size(0), 8])
    for tile in hl.tile(x.size(0)):
        out[tile, :] = torch.nn.functional.pad(x[tile, :], (1, 1), mode="reflect")
    return out


@helion.kernel
def greatest_of_a_tuned_tile(x):
    out = torch.empty([x.size(0), 2])
    for tile, part in hl.tile(x.size()):
        out[tile, :] = x[tile, part].topk(2).values
    return out


@helion.kernel
def greatest_of_a_short_tile(x):
    out = torch.empty([x.size(0), 2, 3])
    for tile, part in hl.tile(x.size(), block_size=[None, 4]):
        out[tile, part.id, :] = x[tile, part].topk(3).values
    return out


@helion.kernel
def quantile_of_unequal_tiles(x):
    out = torch.empty([x.size(0), 2])
    for tile, part in hl.tile(x.size(), block_size=[None, 4]):
        out[tile, part.id] = torch.quantile(x[tile, part], 0.5, dim=1)
    return out


@helion.kernel(static_shapes=False)
def kth_of_a_range_that_varies(x):
    out = torch.empty([x.size(0), 2])
    for tile, part in hl.tile(x.size(), block_size=[None, 4]):
        out[tile, part.id] = torch.kthvalue(x[tile, part], 2, dim=1).values
    return out


CASES = [
    Case(chunks_of_a_tile_axis, exc.UnsupportedSplitOperation, X),
    Case(flipped_tile_axis, exc.UnsupportedIndexRemapping, X),
    Case(slice_of_a_tile_axis, exc.BackendUnsupported, X),
    Case(position_out_of_range, exc.IndexOutOfRange, X),
    Case(indexed_with_bools, exc.DataDependentOutputShapeNotSupported, X),
    Case(split_of_three, exc.InvalidArgumentValue, X),
    Case(joined_types, exc.InvalidArgumentKind, X),
    Case(joined_shapes, exc.ShapeMismatch, X),
    Case(cat_of_different_rows, exc.ShapeMismatch, X),
    Case(reshape_that_splits_a_tile_axis, exc.ShapeMismatch, X),
    Case(positions_of_floats, exc.InvalidArgumentKind, X),
    Case(too_many_of_the_largest, exc.InvalidArgumentValue, X),
    Case(greatest_of_a_tuned_tile, exc.BackendUnsupported, X),
    Case(greatest_of_a_short_tile, exc.InvalidArgumentValue, X),
    Case(quantile_of_unequal_tiles, exc.BackendUnsupported, X),
    Case(kth_of_a_range_that_varies, exc.BackendUnsupported, X),
    Case(padded_by_reflection, exc.UnsupportedTorchArgument, X),
]
