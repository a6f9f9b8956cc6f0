# type: ignore
"""Kernels that each make one mistake, as their authors would have written them.

The recorded texts show these lines with their numbers: add new kernels at the end of the file.
"""

# ruff: noqa: B007, F821, F841, PERF203, PLW0120, PLW0603, RET503, SIM108

from __future__ import annotations

import functools
import math

import torch

import tilesmith as helion
import tilesmith.language as hl

CALLS = 0


@helion.kernel
def copy(x, y=None):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile]
    return out


@helion.kernel
def fill(n, value):
    out = torch.empty([n])
    for tile in hl.tile(n):
        out[tile] = value
    return out


@helion.kernel
def add(x, y):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] + y[tile]
    return out


# Definitions


def define_with_star_args():
    @helion.kernel
    def total(*tensors):
        return tensors

    return total


def define_with_keyword_only():
    @helion.kernel
    def scale(x, *, factor):
        return x * factor

    return scale


def define_from_a_class():
    return helion.kernel(torch.nn.ReLU)


def define_from_a_partial():
    return helion.kernel(functools.partial(math.pow, 2))


def define_with_a_closure():
    factor = 2.0

    @helion.kernel
    def scale(x):
        out = torch.empty_like(x)
        for tile in hl.tile(x.size(0)):
            out[tile] = x[tile] * factor
        return out

    return scale


def define_with_a_reserved_local():
    @helion.kernel
    def scale(x):
        tl = torch.empty_like(x)
        for tile in hl.tile(x.size(0)):
            tl[tile] = x[tile]
        return tl

    return scale


def define_with_config_and_configs():
    config = helion.Config(block_sizes=[16])
    return helion.kernel(copy.fn, config=config, configs=[config])


def define_with_an_unknown_setting():
    return helion.kernel(copy.fn, static_shape=False)


def run_source_from_exec():
    source = """
@helion.kernel
def doubled(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * 2
    return out
"""
    namespace = {"helion": helion, "hl": hl, "torch": torch}
    exec(source, namespace)
    return namespace["doubled"](torch.ones(4))


def twice(function):
    return function


@helion.kernel
@twice
def decorated_below(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile]
    return out


# Loops


@helion.kernel
def without_a_device_loop(x):
    return x + 1


@helion.kernel
def loop_inside_an_if(x, flag):
    out = torch.empty_like(x)
    if flag:
        for tile in hl.tile(x.size(0)):
            out[tile] = x[tile]
    return out


@helion.kernel
def statement_between_loops(x):
    first = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        first[tile] = x[tile] + 1
    second = torch.empty_like(first)
    for tile in hl.tile(x.size(0)):
        second[tile] = x[tile] + 2
    return first, second


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
def range_in_a_comprehension(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        parts = [x[tile] * i for i in range(3)]
        out[tile] = parts[0]
    return out


def sum_of_row(x, tile):
    total = hl.zeros([tile])
    for inner in hl.tile(x.size(1)):
        total = total + x[tile, inner].sum(1)
    return total


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
        for row in x:
            acc = acc + row
        out[tile] = acc
    return out


# Statements of device code


@helion.kernel
def return_in_a_loop(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile]
        return out


@helion.kernel
def with_in_a_loop(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        with torch.no_grad():
            out[tile] = x[tile]
    return out


@helion.kernel
def try_in_a_loop(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        try:
            out[tile] = x[tile]
        except RuntimeError:
            out[tile] = 0
    return out


@helion.kernel
def break_in_a_loop(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        for inner in hl.tile(4):
            if inner.begin > 2:
                break
        out[tile] = x[tile]
    return out


@helion.kernel
def continue_in_a_loop(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        if tile.begin > 2:
            continue
        out[tile] = x[tile]
    return out


@helion.kernel
def del_in_a_loop(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        value = x[tile]
        out[tile] = value
        del value
    return out


@helion.kernel
def raise_in_a_loop(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        raise ValueError("no")
    return out


@helion.kernel
def assert_in_a_loop(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        assert x[tile].sum() > 0
        out[tile] = x[tile]
    return out


@helion.kernel
def import_in_a_loop(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        import string

        out[tile] = x[tile] + len(string.digits)
    return out


@helion.kernel
def global_in_a_loop(x):
    global CALLS
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        CALLS = 1
        out[tile] = x[tile]
    return out


@helion.kernel
def def_in_a_loop(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):

        def double(v):
            return v * 2

        out[tile] = double(x[tile])
    return out


@helion.kernel
def walrus_in_a_loop(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = (value := x[tile]) + value
    return out


@helion.kernel
def chained_assignment(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        a = b = x[tile]
        out[tile] = a + b
    return out


@helion.kernel
def nested_unpacking(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        a, (b, c) = x[tile], (x[tile], x[tile])
        out[tile] = a + b + c
    return out


@helion.kernel
def starred_target(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        a, *rest = x[tile], x[tile], x[tile]
        out[tile] = a + rest[0]
    return out


@helion.kernel
def item_in_a_loop(x, s):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * s.item()
    return out


# Names and where they live


@helion.kernel
def undefined_name(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tiles]
    return out


@helion.kernel
def device_variable_on_the_host(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        total = x[tile].sum()
        out[tile] = x[tile]
    return out, total


@helion.kernel
def host_variable_rebound(x):
    out = torch.empty_like(x)
    count = 0
    for tile in hl.tile(x.size(0)):
        count = count + 1
        out[tile] = x[tile]
    return out, count


@helion.kernel
def bound_in_one_branch(x, n):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        if tile.begin < n:
            factor = x[tile] * 2
        out[tile] = x[tile] + factor
    return out


@helion.kernel
def bound_in_the_loop_only(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        for inner in hl.tile(x.size(0)):
            last = x[inner].sum()
        out[tile] = x[tile] + last
    return out


@helion.kernel
def captured_list_changed(x, parts):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        parts.append(x[tile])
        out[tile] = x[tile]
    return out


def counted(value):
    global CALLS
    CALLS += 1
    return value


@helion.kernel
def helper_writes_a_global(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = counted(x[tile])
    return out


def make_counter():
    calls = 0

    def count(value):
        nonlocal calls
        calls += 1
        return value

    return count


@helion.kernel
def apply_function(x, function):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = function(x[tile])
    return out


def endless(value):
    return endless(value + 1)


@helion.kernel
def recursion(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = endless(x[tile])
    return out


@helion.kernel
def kernel_calls_a_kernel(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = copy(x[tile])
    return out


def hl_outside_a_kernel():
    return hl.zeros([4])


@helion.kernel
def device_function_on_the_host(x):
    out = hl.zeros([4])
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile]
    return out


@helion.kernel
def specialize_in_a_loop(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        n = hl.specialize(x.size(0))
        out[tile] = x[tile] + n
    return out


@helion.kernel
def register_in_a_loop(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        block = hl.register_block_size(64)
        out[tile] = x[tile] + block
    return out


# Control flow


@helion.kernel
def carried_value_changes_dtype(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        acc = hl.zeros([tile], dtype=torch.float32)
        for inner in hl.tile(x.size(0)):
            acc = acc + x[tile].to(torch.float64)
        out[tile] = acc
    return out


@helion.kernel
def carried_value_changes_shape(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        acc = x[tile]
        for inner in hl.tile(x.size(0)):
            acc = acc[:, None] + x[inner][None, :]
        out[tile] = acc
    return out


@helion.kernel
def branches_disagree(x, n):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        if tile.begin < n:
            value = x[tile]
        else:
            value = x[tile].to(torch.bfloat16)
        out[tile] = value
    return out


@helion.kernel
def number_changed_in_a_loop(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        count = 0
        for inner in hl.tile(x.size(0)):
            count += 1
        out[tile] = x[tile] * count
    return out


@helion.kernel
def tensor_condition(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        if x[tile] > 0:
            out[tile] = x[tile]
    return out


@helion.kernel
def and_of_tensors(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        mask = x[tile] > 0 and x[tile] < 1
        out[tile] = torch.where(mask, x[tile], 0)
    return out


@helion.kernel
def host_tensor_condition(x, bias):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        value = x[tile]
        if bias:
            value = value + bias[tile]
        out[tile] = value
    return out


def positive_part(value):
    if value.sum() > 0:
        return value
    return value * 0


@helion.kernel
def condition_in_a_helper(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = positive_part(x[tile])
    return out


# Indexing and operations


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
        out[tile] = torch.logcumsumexp(x[tile], 0)
    return out


@helion.kernel
def missing_torch_operation(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = torch.fft.fft(x[tile])
    return out


@helion.kernel
def zeros_of_a_bare_tile(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] + hl.zeros(tile)
    return out


@helion.kernel
def tile_arithmetic(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile * 2]
    return out


@helion.kernel
def exception_in_a_helper(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * math.sqrt(-1.0)
    return out


# Configs


def run_copy(**keys):
    kernel = helion.kernel(copy.fn, config=helion.Config(**keys))
    return kernel.bind((torch.ones(8),), target="cuda:90").to_triton_code()


@helion.kernel
def accumulator_without_a_start(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        for inner in hl.tile(x.size(0)):
            acc = acc + x[inner].sum()
        out[tile] = x[tile] + acc
    return out


@helion.kernel
def counter_without_a_start(x, n):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        if tile.begin < n:
            count += 1
        out[tile] = x[tile]
    return out


@helion.kernel
def helper_gets_an_unbound_name(x, n):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        if tile.begin < n:
            bias = x[tile]
        out[tile] = torch.maximum(x[tile], bias)
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
