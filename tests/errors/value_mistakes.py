# type: ignore
"""Values that device code cannot use, or not in that way."""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.errors.case import XX, Case, X, matrix, row
from tilesmith import exc


@helion.kernel
def set_of_the_host(x):
    allowed = {1, 2}
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * len(allowed)
    return out


@helion.kernel
def three_values_for_two_names(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        a, b = x[tile], x[tile], 1
        out[tile] = a + b
    return out


@helion.kernel
def two_values_for_three_names(x, pair):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        a, b, c = pair
        out[tile] = x[tile] + a + b + c
    return out


@helion.kernel
def tuple_indexed_at_run_time(x, parts):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        for i in range(2):
            out[tile] = x[tile] + parts[i]
    return out


@helion.kernel
def store_into_a_number(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        hl.store(3, [tile], x[tile])
        out[tile] = x[tile]
    return out


@helion.kernel
def batches_of_unequal_size(x, y):
    out = torch.empty(2, 8, 8)
    for tile in hl.tile(8):
        out[:, tile, :] = torch.bmm(x[:, tile, :], y[:, :, :])
    return out


@helion.kernel
def one_block_size_in_nested_loops(x):
    block = hl.register_block_size(8)
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0), block_size=block):
        for other in hl.tile(x.size(1), block_size=block):
            out[tile, other] = x[tile, other]
    return out


@helion.kernel
def reshape_to_a_runtime_number(x, n):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile].reshape(n)
    return out


@helion.kernel
def arange_of_a_runtime_number(x, n):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] + hl.arange(0, n).sum()
    return out


@helion.kernel(check=True, config=helion.Config(block_sizes=[8]))
def one_element_stored_twice(x, index):
    out = torch.zeros_like(x)
    for tile in hl.tile(x.size(0)):
        out[index[tile]] = x[tile]
    return out


@helion.kernel
def tensor_of_unsupported_dtype_in_a_dot(x, y):
    out = torch.empty(8, 8)
    for tile in hl.tile(8):
        out[tile, :] = hl.dot(x[tile, :], y[:, :])
    return out


CASES = [
    Case(set_of_the_host, exc.CantReadOnDevice, X),
    Case(three_values_for_two_names, exc.FailedToUnpackTupleAssign, X),
    Case(two_values_for_three_names, exc.FailedToUnpackTupleAssign, (row(), (1, 2))),
    Case(tuple_indexed_at_run_time, exc.InvalidSequenceSubscription, (row(), (1.0, 2.0))),
    Case(store_into_a_number, exc.NonTensorSubscriptAssign, X),
    Case(
        batches_of_unequal_size,
        exc.DotBatchDimensionMismatch,
        (torch.ones(2, 8, 8), torch.ones(3, 8, 8)),
    ),
    Case(one_block_size_in_nested_loops, exc.NestedDeviceLoopsConflict, XX),
    Case(reshape_to_a_runtime_number, exc.ShapeSpecializingAllocation, (row(), 8)),
    Case(arange_of_a_runtime_number, exc.ShapeSpecializingCall, (row(), 8)),
    Case(
        one_element_stored_twice,
        exc.DuplicateStoreIndicesError,
        (row(), torch.tensor([0, 1, 2, 3, 3, 5, 6, 7])),
    ),
    Case(
        tensor_of_unsupported_dtype_in_a_dot,
        TypeError,
        (matrix().to(torch.int64), matrix().to(torch.int64)),
    ),
]
