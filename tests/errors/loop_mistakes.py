# type: ignore
"""Device loops that are written wrong."""

# ruff: noqa: F841, PLW0120

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.errors.case import XX, Case, X, row
from tilesmith import exc


@helion.kernel
def without_a_device_loop(x):
    return x + 1


@helion.kernel
def loop_inside_a_def(x):
    out = torch.empty_like(x)

    def copy():
        for tile in hl.tile(x.size(0)):
            out[tile] = x[tile]

    copy()
    return out


@helion.kernel
def host_reads_what_an_earlier_loop_computed(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        doubled = x[tile] * 2
        out[tile] = doubled
    total = doubled.sum()
    for tile in hl.tile(x.size(0)):
        out[tile] = out[tile] - total[()]
    return out


@helion.kernel
def loop_in_a_branch_rebinds_a_host_variable(x, flag):
    out = torch.empty_like(x)
    scale = 2.0
    if flag:
        for tile in hl.tile(x.size(0)):
            scale = x[tile] * 2
            out[tile] = scale
    return out


@helion.kernel
def barrier_in_a_host_branch(x, flag):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile]
    if flag:
        hl.barrier()
    for tile in hl.tile(x.size(0)):
        out[tile] = out[tile] + 1
    return out


@helion.kernel
def wrong_line_of_a_later_launch(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile]
    more = torch.zeros_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = more[tile] + undefined_name  # noqa: F821
    return out


@helion.kernel
def loops_without_a_barrier(x):
    part = torch.empty_like(x)
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        part[tile] = x[tile] + 1
    for tile in hl.tile(x.size(0)):
        out[tile] = part[tile] * 2
    return out


@helion.kernel
def loop_without_a_store(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        doubled = x[tile] * 2
    return out


@helion.kernel
def loop_with_else(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile]
    else:
        out.zero_()
    return out


@helion.kernel
def tile_outside_for(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        inner = hl.tile(4)
        out[tile] = x[tile] + inner
    return out


@helion.kernel
def range_in_a_comprehension(x, n):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        parts = [x[tile] * i for i in range(n)]
        out[tile] = parts[0]
    return out


def sum_of_row(x, tile):
    return sum(x[tile, inner].sum(1) for inner in hl.tile(x.size(1)))


@helion.kernel
def loop_in_a_helper(x):
    out = torch.empty([x.size(0)])
    for tile in hl.tile(x.size(0)):
        out[tile] = sum_of_row(x, tile)
    return out


@helion.kernel
def tile_of_a_tile(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        for inner in hl.tile(tile):
            out[inner] = x[inner]
    return out


@helion.kernel
def one_tile_for_two_names(x):
    out = torch.empty_like(x)
    for rows, columns in hl.tile(x.size(0)):
        out[rows, columns] = x[rows, columns]
    return out


@helion.kernel
def two_sizes_as_bounds(x):
    out = torch.empty_like(x)
    for rows, columns in hl.tile(x.size(0), x.size(1) - 4):
        out[rows, columns] = x[rows, columns]
    return out


@helion.kernel
def ranks_that_a_tile_decides(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        value = hl.zeros([tile])
        if tile.index < 1:
            value = hl.zeros([tile, tile])
        out[tile] = value.sum()
    return out


@helion.kernel
def range_that_ends_before_it_begins(x):
    out = torch.empty_like(x)
    for tile in hl.tile(8, 4):
        out[tile] = x[tile]
    return out


@helion.kernel
def mixed_bounds(x):
    out = torch.empty_like(x)
    for tile in hl.tile(0, [4, 4]):
        out[tile] = x[tile]
    return out


@helion.kernel
def odd_block_size(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0), block_size=24):
        out[tile] = x[tile]
    return out


@helion.kernel
def runtime_static_range(x, n):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        acc = x[tile]
        for i in hl.static_range(n):
            acc = acc + i
        out[tile] = acc
    return out


@helion.kernel
def loop_over_a_tensor(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        acc = x[tile]
        for line in x:
            acc = acc + line
        out[tile] = acc
    return out


@helion.kernel
def tiles_of_no_dimensions(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.shape):
        out[tile] = x[tile]
    return out


@helion.kernel(static_shapes=False)
def block_of_a_runtime_size(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0), block_size=x.size(0)):
        out[tile] = x[tile]
    return out


CASES = [
    Case(without_a_device_loop, exc.NoDeviceLoopsInKernel, X),
    Case(loop_inside_a_def, exc.NestedGridLoop, X),
    Case(host_reads_what_an_earlier_loop_computed, exc.CannotReadDeviceVariableOnHost, X),
    Case(
        loop_in_a_branch_rebinds_a_host_variable,
        exc.CannotModifyHostVariableOnDevice,
        (row(), True),
    ),
    Case(barrier_in_a_host_branch, exc.BarrierOnlyAllowedAtTopLevel, (row(), True)),
    Case(wrong_line_of_a_later_launch, exc.UndefinedVariable, X),
    Case(loops_without_a_barrier, exc.LoopDependencyError, X),
    Case(loop_without_a_store, exc.EmptyDeviceLoopAfterDCE, X),
    Case(loop_with_else, exc.DeviceLoopElseBlock, X),
    Case(tile_outside_for, exc.LoopFunctionNotInFor, X),
    Case(range_in_a_comprehension, exc.LoopFunctionNotInFor, (row(), 3)),
    Case(loop_in_a_helper, exc.LoopFunctionNotInFor, XX),
    Case(tile_of_a_tile, exc.TileOfTile, X),
    Case(one_tile_for_two_names, exc.FailedToUnpackTile, XX),
    Case(two_sizes_as_bounds, exc.FailedToUnpackTile, XX),
    Case(ranks_that_a_tile_decides, exc.ControlFlowTensorMismatch, X),
    Case(range_that_ends_before_it_begins, exc.InvalidTileRange, X),
    Case(mixed_bounds, exc.IncorrectTileUsage, X),
    Case(odd_block_size, exc.IncorrectTileUsage, X),
    Case(runtime_static_range, exc.TypeInferenceError, (row(), 3)),
    Case(loop_over_a_tensor, exc.InvalidDeviceForLoop, X),
    Case(tiles_of_no_dimensions, exc.IncorrectTileUsage, (torch.tensor(1.0),)),
    Case(block_of_a_runtime_size, exc.ShapeSpecializingCall, X),
]
