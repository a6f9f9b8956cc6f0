# type: ignore
"""Mistakes in slices, atomics, stacks of tensors, products, and new values."""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.errors.case import XX, Case, X, matrix, row
from tilesmith import exc


@helion.kernel
def tile_past_the_end_of_another_tensor(x, y):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] + y[tile]
    return out


@helion.kernel
def store_past_the_end(x, y):
    for tile, rows in hl.tile([x.size(0), 2]):
        y[rows, tile] = x[tile][None, :]
    return y


@helion.kernel
def backward_slice(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile, :] = x[tile, ::-1]
    return out


@helion.kernel
def slice_of_runtime_length(x, n):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile, :n] = x[tile, :n]
    return out


@helion.kernel
def slice_from_a_tensor(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile.index : 8]
    return out


@helion.kernel
def slice_by_a_string(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x["a":8]
    return out


@helion.kernel
def two_ellipses(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile, :] = x[..., tile, ...]
    return out


@helion.kernel
def index_by_true(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[True]
    return out


@helion.kernel
def host_tensor_as_an_index(x, index):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[index]
    return out


@helion.kernel
def unknown_eviction(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = hl.load(x, [tile], eviction_policy="evict_all")
    return out


@helion.kernel
def stored_by_function_into_a_value(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        values = x[tile]
        hl.store(values, [tile], 1.0)
        out[tile] = values
    return out


@helion.kernel
def unknown_memory_order(x):
    for tile in hl.tile(x.size(0)):
        hl.atomic_add(x, [tile], 1, sem="seq_cst")
    return x


@helion.kernel
def bits_of_floats(x):
    for tile in hl.tile(x.size(0)):
        hl.atomic_and(x, [tile], 1)
    return x


@helion.kernel
def swap_of_floats(x):
    for tile in hl.tile(x.size(0)):
        hl.atomic_cas(x, [tile], 0.0, 1.0)
    return x


@helion.kernel
def sum_of_flags(x):
    for tile in hl.tile(x.size(0)):
        hl.atomic_add(x, [tile], True)
    return x


@helion.kernel
def atomic_with_a_tile(x):
    for tile in hl.tile(x.size(0)):
        hl.atomic_add(x, [tile], tile)
    return x


@helion.kernel
def atomic_on_a_number(x):
    for tile in hl.tile(x.size(0)):
        hl.atomic_add(5, [tile], 1)
    return x


@helion.kernel
def stack_on_the_host(x, addresses):
    out = torch.empty_like(x)
    stack = hl.stacktensor_like(x, addresses)
    for tile in hl.tile(x.size(0)):
        out[tile] = stack[tile]
    return out


@helion.kernel
def stack_of_addresses_not_loaded(x, addresses):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = hl.stacktensor_like(x, addresses)[tile]
    return out


@helion.kernel
def stack_of_signed_addresses(x, addresses):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = hl.stacktensor_like(x, addresses[0])[tile]
    return out


@helion.kernel
def stack_like_a_device_value(x, addresses):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        values = x[tile]
        out[tile] = hl.stacktensor_like(values, addresses[0])[tile]
    return out


@helion.kernel
def atomic_on_a_stack(x, addresses):
    for tile in hl.tile(x.size(0)):
        hl.atomic_add(hl.stacktensor_like(x, addresses[0]), [tile], 1)
    return x


@helion.kernel
def dot_of_long_integers(x, y):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile, :] = hl.dot(x[tile, :].to(torch.int64), y[:, :].to(torch.int64))
    return out


@helion.kernel
def dot_with_a_host_tensor(x, y):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile, :] = hl.dot(x[tile, :], y)
    return out


@helion.kernel
def dot_of_unequal_batches(x, y):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(1)):
        out[:, tile, :] = hl.dot(x[:, tile, :], y[:, :, :])
    return out


@helion.kernel
def dot_into_a_bfloat16(x, y):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        acc = hl.zeros([tile, 8], dtype=torch.bfloat16)
        out[tile, :] = hl.dot(x[tile, :], y[:, :], acc=acc)
    return out


@helion.kernel
def product_of_unequal_types(x, y):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile, :] = x[tile, :] @ y[:, :].to(torch.float16)
    return out


@helion.kernel
def product_with_factors(x, y):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile, :] = torch.addmm(x[tile, :], x[tile, :], y[:, :], alpha=2)
    return out


@helion.kernel
def einsum_of_a_diagonal(x, y):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile, :] = torch.einsum("ii,ij->ij", x[tile, :], y[:, :])
    return out


@helion.kernel
def unknown_format(x, y):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile, :] = hl.dot_scaled(x[tile, :], None, "e3m2", y[:, :], None, "bf16")
    return out


@helion.kernel
def format_of_another_type(x, y):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile, :] = hl.dot_scaled(x[tile, :], None, "bf16", y[:, :], None, "bf16")
    return out


@helion.kernel
def half_bytes_of_floats(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        low, high = hl.float4_e2m1fn_x2_to_float32(x[tile])
        out[tile] = low + high
    return out


@helion.kernel
def words_of_floats(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = hl.load_float4_e2m1fn_x16_to_float16(x, tile.index)[0]
    return out


@helion.kernel
def range_of_runtime_length(x, n):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] + hl.arange(n + tile.begin).sum()
    return out


@helion.kernel
def range_without_a_step(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] + hl.arange(0, 8, 0)
    return out


@helion.kernel
def allocation_of_runtime_size(x, n):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] + hl.zeros([n * n]).sum()
    return out


@helion.kernel
def list_of_strings(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] + torch.tensor(["a", "b"])
    return out


@helion.kernel
def impossible_probability(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = torch.nn.functional.dropout(x[tile], p=1.5)
    return out


ADDRESSES = torch.zeros(8, dtype=torch.uint64)
BATCHES = (torch.ones(2, 8, 8), torch.ones(3, 8, 8))
PAIR = (matrix(), matrix())

CASES = [
    Case(tile_past_the_end_of_another_tensor, exc.TileOutOfRange, (row(), torch.ones(3))),
    Case(store_past_the_end, exc.TileOutOfRange, (row(), torch.ones(2, 7))),
    Case(backward_slice, exc.InvalidSliceStep, XX),
    Case(slice_of_runtime_length, exc.TensorSliceBound, (matrix(), 3)),
    Case(slice_from_a_tensor, exc.TensorSliceBound, X),
    Case(slice_by_a_string, exc.InvalidIndexingType, X),
    Case(two_ellipses, exc.TypeInferenceError, XX),
    Case(index_by_true, exc.InvalidIndexingType, X),
    Case(host_tensor_as_an_index, exc.HostTensorDirectUsage, (row(), torch.arange(8))),
    Case(unknown_eviction, exc.InvalidAPIUsage, X),
    Case(stored_by_function_into_a_value, exc.DeviceTensorSubscriptAssignmentNotAllowed, X),
    Case(unknown_memory_order, ValueError, X),
    Case(bits_of_floats, TypeError, X),
    Case(swap_of_floats, TypeError, X),
    Case(sum_of_flags, TypeError, (torch.ones(8, dtype=torch.bool),)),
    Case(atomic_with_a_tile, exc.RequiresTensorInAssignment, X),
    Case(atomic_on_a_number, exc.NonTensorSubscriptAssign, X),
    Case(stack_on_the_host, exc.StackTensorcOnHost, (row(), ADDRESSES)),
    Case(stack_of_addresses_not_loaded, exc.StackTensorDevPtrOnHost, (row(), ADDRESSES)),
    Case(stack_of_signed_addresses, exc.StackTensorDevPtrDtype, (row(), torch.arange(8))),
    Case(stack_like_a_device_value, exc.StackTensorExampleOnDevice, (row(), ADDRESSES)),
    Case(atomic_on_a_stack, TypeError, (row(), ADDRESSES)),
    Case(dot_of_long_integers, TypeError, PAIR),
    Case(dot_with_a_host_tensor, TypeError, PAIR),
    Case(dot_of_unequal_batches, exc.DotBatchDimensionMismatch, BATCHES),
    Case(dot_into_a_bfloat16, TypeError, PAIR),
    Case(product_of_unequal_types, exc.UnsupportedTorchArgument, PAIR),
    Case(product_with_factors, exc.UnsupportedTorchArgument, PAIR),
    Case(einsum_of_a_diagonal, exc.UnsupportedTorchArgument, PAIR),
    Case(unknown_format, ValueError, PAIR),
    Case(format_of_another_type, TypeError, PAIR),
    Case(half_bytes_of_floats, TypeError, X),
    Case(words_of_floats, TypeError, X),
    Case(range_of_runtime_length, exc.ShapeSpecializingCall, (row(), 3)),
    Case(range_without_a_step, ValueError, X),
    Case(allocation_of_runtime_size, exc.ShapeSpecializingAllocation, (row(), 3)),
    Case(list_of_strings, exc.UnsupportedTorchArgument, X),
    Case(impossible_probability, ValueError, X),
]
