# type: ignore
"""Kernels that print or stop while they run."""

# ruff: noqa: F841, T201

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl


@helion.kernel(config=helion.Config(block_sizes=[4]))
def print_doubles(x):
    print("on the host")
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        value = x[tile] * 2
        print("100% doubled", value)
        out[tile] = value
    return out


@helion.kernel(config=helion.Config(block_sizes=[2, 4]))
def print_only(x):
    for tm, tn in hl.tile(x.shape):
        hl.device_print("x", x[tm, tn])


@helion.kernel(config=helion.Config(block_sizes=[1, 4]))
def print_rows_of_one(x):
    for tm, tn in hl.tile(x.shape):
        hl.device_print("x", x[tm, tn])


@helion.kernel(config=helion.Config(block_sizes=[8]))
def print_numbers(x, n):
    for tile in hl.tile(x.size(0)):
        print("numbers", tile.begin, n, 7, x.size(0))
        print("end of program")


@helion.kernel(config=helion.Config(block_sizes=[8]))
def print_between_stores(x):
    for tile in hl.tile(x.size(0)):
        before = x[tile]
        x[tile] = before + 1
        print("before", before)
        print("after", x[tile])
        x[tile] = x[tile] * 10


@helion.kernel(config=helion.Config(block_sizes=[8]))
def print_in_loops_and_branches(x, n):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        total = x[tile].sum()
        for i in range(n):
            if i > 0:
                print("turn", i)
        print("total", total)
        print("total", total)
        out[tile] = x[tile] - total
    return out


@helion.kernel(config=helion.Config(block_sizes=[2]))
def print_around_a_reduction(x):
    out = torch.empty(x.size(0))
    for tile in hl.tile(x.size(0)):
        row = x[tile, :]
        total = row.sum(-1)
        print("total", total)
        print("largest", row.amax(-1))
        out[tile] = (row / total[:, None]).sum(-1)
    return out


@helion.kernel(config=helion.Config(block_sizes=[4]), backend="reference")
def stop_in_a_loop(x, scale):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        value = x[tile] * scale
        for i in range(2):
            partial = value + i
            if i > 0:
                breakpoint()
        out[tile] = value
    return out


@helion.kernel(ref_mode=helion.RefMode.EAGER)
def stop_at_a_language_function(x):
    for tile in hl.tile(x.size(0)):
        value = x[tile] + 1
        hl.breakpoint()


def shown(value):
    print("in a helper", value)
    return value


@helion.kernel(config=helion.Config(block_sizes=[4]))
def print_in_a_helper(x):
    for tile in hl.tile(x.size(0)):
        x[tile] = shown(x[tile] * 2)
