"""Kernels that look like mistakes and are none: they run and give the right answer."""

# ruff: noqa: PLW0603, SIM108
# pyright: reportPossiblyUnboundVariable=false, reportConstantRedefinition=false

from __future__ import annotations

import functools

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl

TOTAL = 0


def note_call():
    global TOTAL
    TOTAL += 1


@helion.kernel
def host_helper_writes_a_global(x):
    note_call()
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] + 1
    return out


def outer_with_own_cell(value):
    count = 0

    def bump():
        nonlocal count
        count += 1

    bump()
    return value + count


@helion.kernel
def helper_writes_its_own_cell(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = outer_with_own_cell(x[tile])
    return out


def power(value, exponent):
    return value if exponent == 1 else value * power(value, exponent - 1)


@helion.kernel
def recursion_that_ends(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = power(x[tile] + 1, 1)
    return out


@helion.kernel
def list_made_in_the_loop(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        parts = []
        parts.append(x[tile])
        parts.append(1)
        out[tile] = parts[0] + parts[1]
    return out


@helion.kernel
def name_bound_in_both_branches(x, n):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        if tile.begin < n:
            step = x[tile] + 1
        else:
            step = x[tile] + 1
        out[tile] = step
    return out


@helion.kernel
def name_bound_in_the_taken_static_branch(x, bias=None):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        if bias is None:
            value = x[tile] + 1
        out[tile] = value
    return out


@helion.kernel
def local_name_used_in_two_loops(x):
    out = torch.empty_like(x)
    other = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        value = x[tile] + 1
        out[tile] = value
    for tile in hl.tile(x.size(0)):
        value = x[tile] + 2
        other[tile] = value
    return out


@helion.kernel
def range_on_the_host(x):
    sizes = [x.size(0) for _ in range(3)]
    out = torch.empty_like(x)
    for tile in hl.tile(sizes[0]):
        out[tile] = x[tile] + 1
    return out


@helion.kernel
def host_statements_of_all_kinds(x):
    try:
        n = x.size(0)
    finally:
        step = 1
    with torch.no_grad():
        out = torch.empty_like(x)
    for _ in range(2):
        if n > 100:
            break
    del _
    for tile in hl.tile(n):
        out[tile] = x[tile] + step
    return out


def passed_through(function):
    @functools.wraps(function)
    def call(*args):
        return function(*args)

    return call


@passed_through
@helion.kernel
def decorator_above(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] + 1
    return out


@helion.kernel
def static_assertion(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        assert x.dtype == torch.float32
        out[tile] = x[tile] + 1
    return out


@helion.kernel
def early_return_on_the_host(x, flag=False):
    if flag:
        return x
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] + 1
    return out


@pytest.mark.parametrize("size", [1, 7, 33])
@pytest.mark.parametrize(
    "kernel",
    [
        host_helper_writes_a_global,
        helper_writes_its_own_cell,
        recursion_that_ends,
        list_made_in_the_loop,
        name_bound_in_the_taken_static_branch,
        local_name_used_in_two_loops,
        range_on_the_host,
        host_statements_of_all_kinds,
        decorator_above,
        static_assertion,
        early_return_on_the_host,
    ],
    ids=lambda kernel: kernel.__name__,
)
def test_legal_kernels_run(kernel, size):
    x = torch.arange(size, dtype=torch.float32)
    assert torch.equal(kernel(x), x + 1)


@pytest.mark.parametrize("size", [1, 7, 33])
def test_a_name_bound_in_both_branches_is_usable_after_them(size):
    x = torch.arange(size, dtype=torch.float32)
    assert torch.equal(name_bound_in_both_branches(x, 4), x + 1)
