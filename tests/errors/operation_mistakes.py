# type: ignore
"""Indices, stores and operations that device code does not have."""

from __future__ import annotations

import math

import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.errors.case import XX, Case, X, matrix, row
from tilesmith import exc


@helion.kernel
def host_tensor_as_a_value(x, y):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] + y
    return out


@helion.kernel
def host_tensor_in_a_torch_call(x, y):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = torch.maximum(x[tile], y)
    return out


@helion.kernel
def too_many_indices(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile, 0, 0]
    return out


@helion.kernel
def too_many_indices_before_the_rest(x):
    for i in hl.grid(x.size(0)):
        x[i, 0, ...] = 1.0
    return x


@helion.kernel
def stored_rank_too_high(x):
    out = torch.empty([x.size(0)])
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile, :]
    return out


@helion.kernel
def index_by_a_float(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[1.5]
    return out


@helion.kernel
def index_out_of_range(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[99]
    return out


@helion.kernel
def boolean_index(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        values = x[tile]
        out[tile] = x[values > 0]
    return out


@helion.kernel
def tuple_of_tiles_as_one_index(x):
    out = torch.empty_like(x)
    for tiles in hl.tile([x.size(0), x.size(1)]):
        out[tiles, 0] = x[tiles, 0]
    return out


@helion.kernel
def store_into_a_device_value(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        acc = hl.zeros([tile])
        acc[0] = 1.0
        out[tile] = acc
    return out


@helion.kernel
def store_of_a_string(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = "one"
    return out


@helion.kernel
def atomic_on_a_device_value(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        acc = hl.zeros([tile])
        hl.atomic_add(acc, [tile], x[tile])
        out[tile] = acc
    return out


@helion.kernel
def reduction_without_keepdim(x):
    out = torch.empty_like(x)
    for rows, columns in hl.tile([x.size(0), x.size(1)]):
        block = x[rows, columns]
        out[rows, columns] = block - block.amax(1)
    return out


@helion.kernel
def full_slices_of_unequal_size(x, y):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile, :] = x[tile, :] + y[tile, :]
    return out


@helion.kernel
def dot_of_unequal_k(x, y):
    out = torch.empty([x.size(0), y.size(1)])
    for rows, columns in hl.tile([x.size(0), y.size(1)]):
        out[rows, columns] = x[rows, :] @ y[:, columns]
    return out


@helion.kernel
def reduction_of_a_missing_dim(x):
    out = torch.empty([x.size(0)])
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile, :].sum(dim=2)
    return out


@helion.kernel
def unsupported_torch_function(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = torch.linalg.inv(x[tile])
    return out


@helion.kernel
def missing_torch_operation(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = torch.fft.fft(x[tile])
    return out


@helion.kernel
def zeros_of_a_string(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] + hl.zeros("8")
    return out


@helion.kernel
def tile_arithmetic(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile * 2]
    return out


@helion.kernel
def number_plus_a_tile(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[1 + tile]
    return out


@helion.kernel
def symbol_plus_a_tile(x, shift: int):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[shift + tile]
    return out


@helion.kernel
def tile_minus_a_number(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile - 1]
    return out


@helion.kernel
def tile_compared_with_a_number(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        if tile == 0:
            out[tile] = x[tile]
    return out


@helion.kernel
def tile_compared_with_a_value(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = tile != x[tile]
    return out


@helion.kernel
def tile_as_a_condition(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        if tile:
            out[tile] = x[tile]
    return out


@helion.kernel
def number_shifted_by_a_tile(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[1 << tile]
    return out


@helion.kernel
def exception_in_a_helper(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * math.sqrt(-1.0)
    return out


@helion.kernel
def tile_as_an_operand(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] + tile
    return out


@helion.kernel
def string_as_an_operand(x, mode):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] + mode
    return out


@helion.kernel(static_shapes=False)
def constant_axis_into_a_runtime_size(x):
    for tile in hl.tile(x.size(0)):
        x[tile, :] = hl.zeros([tile, 12])


@helion.kernel
def maximum_of_nothing(x):
    out = x.new_empty([x.size(0)])
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile, :].amax(-1)
    return out


@helion.kernel(static_shapes=False)
def largest_of_a_varying_tile(x):
    out = x.new_empty([4])
    for tile in hl.tile(x.size(0)):
        out[:] = torch.topk(x[tile], 4).values
    return out


@helion.kernel(static_shapes=False)
def largest_of_few(x):
    out = x.new_empty([x.size(0), 40])
    for tile in hl.tile(x.size(0)):
        out[tile, :] = torch.topk(x[tile, :], 40).values
    return out


CASES = [
    Case(host_tensor_as_a_value, exc.HostTensorDirectUsage, (row(), row())),
    Case(host_tensor_in_a_torch_call, exc.HostTensorDirectUsage, (row(), row())),
    Case(too_many_indices, exc.RankMismatch, X),
    Case(too_many_indices_before_the_rest, exc.TypeInferenceError, X),
    Case(stored_rank_too_high, exc.RankMismatch, XX),
    Case(index_by_a_float, exc.InvalidIndexingType, X),
    Case(index_out_of_range, exc.IndexOutOfRange, X),
    Case(boolean_index, exc.DataDependentOutputShapeNotSupported, X),
    Case(tuple_of_tiles_as_one_index, exc.OverpackedTile, XX),
    Case(store_into_a_device_value, exc.DeviceTensorSubscriptAssignmentNotAllowed, X),
    Case(store_of_a_string, exc.RequiresTensorInAssignment, X),
    Case(atomic_on_a_device_value, exc.AtomicOnDeviceTensor, X),
    Case(reduction_without_keepdim, exc.ShapeMismatch, XX),
    Case(full_slices_of_unequal_size, exc.ShapeMismatch, (matrix(12), matrix(13))),
    Case(dot_of_unequal_k, ValueError, (matrix(12), matrix(13))),
    Case(reduction_of_a_missing_dim, exc.ReductionDimInvalidForShape, XX),
    Case(unsupported_torch_function, exc.UnsupportedTorchFunction, X),
    Case(missing_torch_operation, exc.InductorLoweringError, X),
    Case(zeros_of_a_string, exc.InvalidAPIUsage, X),
    Case(tile_arithmetic, exc.TorchOpTracingError, X),
    Case(number_plus_a_tile, exc.TorchOpTracingError, X),
    Case(symbol_plus_a_tile, exc.TorchOpTracingError, (row(), 1)),
    Case(tile_minus_a_number, exc.TorchOpTracingError, X),
    Case(tile_compared_with_a_number, exc.TorchOpTracingError, X),
    Case(tile_compared_with_a_value, exc.IncorrectTileUsage, X),
    Case(tile_as_a_condition, exc.IncorrectTileUsage, X),
    Case(number_shifted_by_a_tile, exc.TorchOpTracingError, X),
    Case(tile_as_an_operand, exc.IncorrectTileUsage, X),
    Case(string_as_an_operand, exc.TypeInferenceError, (row(), "sum")),
    Case(exception_in_a_helper, exc.TorchOpTracingError, X),
    Case(constant_axis_into_a_runtime_size, exc.ShapeMismatch, (matrix(11),)),
    Case(maximum_of_nothing, IndexError, (matrix(0),)),
    Case(largest_of_a_varying_tile, exc.BackendUnsupported, X),
    Case(largest_of_few, exc.InvalidArgumentValue, (torch.ones(3, 5),)),
]
