# type: ignore
"""Names used where they mean nothing, and functions called where they do not belong."""

# ruff: noqa: F821, F841, PLW0603

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.errors.case import Case, X, row
from tests.errors.definition_mistakes import copy
from tilesmith import exc

CALLS = 0


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
    out = hl.arange(4)
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


CASES = [
    Case(undefined_name, exc.UndefinedVariable, X),
    Case(device_variable_on_the_host, exc.CannotReadDeviceVariableOnHost, X),
    Case(host_variable_rebound, exc.CannotModifyHostVariableOnDevice, X),
    Case(bound_in_one_branch, exc.UnboundInBranch, (row(), 4)),
    Case(bound_in_the_loop_only, exc.UnboundAfterLoop, X),
    Case(accumulator_without_a_start, exc.UndefinedVariable, X),
    Case(counter_without_a_start, exc.UndefinedVariable, (row(), 4)),
    Case(helper_gets_an_unbound_name, exc.UnboundInBranch, (row(), 4)),
    Case(captured_list_changed, exc.CapturedListMutation, (row(), [])),
    Case(helper_writes_a_global, exc.GlobalMutation, X),
    Case(apply_function, exc.ClosureMutation, (row(), make_counter())),
    Case(recursion, exc.RecursiveHelper, X),
    Case(kernel_calls_a_kernel, exc.NestedKernelCallsNotSupported, X),
    Case(hl_outside_a_kernel, exc.NotInsideKernel, has_place=False),
    Case(device_function_on_the_host, exc.DeviceAPIOnHost, X),
    Case(specialize_in_a_loop, exc.SpecializeOnDevice, X),
    Case(register_in_a_loop, exc.RegisterOnDevice, X),
]
