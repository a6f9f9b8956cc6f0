"""Kernels whose result depends on the order of reads and writes within one program.

A statement about tiles reads everything before it writes anything.
"""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl


@helion.kernel
def copy_in_order(source, target):
    for _ in hl.grid(1):
        for t in hl.tile(target.size(0)):
            target[t] = source[t] + 1


@helion.kernel
def shift_left(x):
    for _ in hl.grid(1):
        for t in hl.tile(x.size(0) - 1):
            x[t] = x[t.index + 1]


@helion.kernel
def shift_right(x):
    for _ in hl.grid(1):
        for t in hl.tile(x.size(0) - 1):
            x[t.index + 1] = x[t] * 2


@helion.kernel
def reverse_in_place(x):
    for _ in hl.grid(1):
        for t in hl.tile(x.size(0)):
            x[t] = x[x.size(0) - 1 - t.index]


@helion.kernel
def transpose_in_place(x):
    for _ in hl.grid(1):
        x[:, :] = x[:, :].t()


@helion.kernel
def exchange(x, y):
    for t in hl.tile(x.size(0)):
        old = x[t]
        x[t] = y[t]
        y[t] = old


@helion.kernel
def update_in_turns(x, count):
    for t in hl.tile(x.size(0)):
        old = x[t]
        for turn in range(count):
            x[t] = old * 2 + turn


@helion.kernel
def update_until(x, count):
    for t in hl.tile(x.size(0)):
        old, turn = x[t], 0
        while turn < count:
            x[t] = old * 2 + turn
            turn = turn + 1


@helion.kernel
def exchange_by_halves(x):
    half = x.size(0) // 2
    for t in hl.tile(half):
        low, high = x[t], x[t.index + half]
        x[t] = high
        x[t.index + half] = low


@helion.kernel
def read_before_and_after(x, out):
    for t in hl.tile(x.size(0)):
        before = x[t]
        x[t] = before * 3
        middle = x[t]
        x[t] = middle + 1
        out[t] = before + 10 * middle + 100 * x[t]


@helion.kernel
def stored_elsewhere_in_the_tile(x, out):
    for _ in hl.grid(1):
        for t in hl.tile(x.size(0)):
            x[t] = x[t] + 1
            out[t] = x[x.size(0) - 1 - t.index]


@helion.kernel
def kept_through_a_loop(x, out):
    for t in hl.tile(x.size(0)):
        first = x[t]
        for step in range(3):
            x[t] = x[t] * 2 + step
        out[t] = first


@helion.kernel
def used_in_a_loop_that_overwrites(x, out):
    for t in hl.tile(x.size(0)):
        total = hl.zeros([t], dtype=x.dtype)
        first = x[t]
        for _ in range(3):
            total = total + first
            x[t] = x[t] + 5
        out[t] = total


@helion.kernel
def normalised_in_place(x, out):
    for t in hl.tile(x.size(0)):
        total = x[t, :].sum(1)
        x[t, :] = x[t, :] - total[:, None]
        out[t] = x[t, :].amax(1) + total


@helion.kernel
def updated_before_the_sum(x, out):
    for t in hl.tile(x.size(0)):
        row = x[t, :]
        x[t, :] = row * 0
        out[t] = row.sum(1) + x[t, :].sum(1)


@helion.kernel
def masked_update(x, out):
    for t in hl.tile(x.size(0)):
        value = x[t]
        hl.store(x, [t], value * 7, extra_mask=value % 2 == 0)
        out[t] = x[t]


@helion.kernel
def loaded_where_allowed(x, out):
    for _ in hl.grid(1):
        for t in hl.tile(out.size(0)):
            at = t.index - 2
            out[t] = hl.load(x, [at], extra_mask=(at >= 0) & (at < x.size(0)))


@helion.kernel
def added_then_read(x, out):
    for t in hl.tile(x.size(0)):
        old = hl.atomic_add(x, [t], t.index)
        out[t] = x[t] * 1000 + old


@helion.kernel
def transposed_before_it_changes(x, out):
    for _ in hl.grid(1):
        out[:, :] = x[:, :].t()
        x[:, :] = x[:, :] + 100


@helion.kernel
def gathered_update(x, at, out):
    for _ in hl.grid(1):
        for t in hl.tile(at.size(0)):
            old = x[at[t]]
            x[at[t]] = old + 1
            out[t] = x[at[t]]


@helion.kernel
def product_of_what_was_stored(x, out):
    for _ in hl.grid(1):
        x[:, :] = x[:, :] * 2
        out[:, :] = hl.dot(x[:, :], x[:, :])
        x[:, :] = x[:, :] * 0


@helion.kernel
def running_sum_in_place(x):
    for t in hl.tile(x.size(0)):
        x[t, :] = torch.cumsum(x[t, :], 1)


@helion.kernel
def product_of_what_was_there(x, y, out):
    for tile in hl.tile(x.size(0)):
        rows = x[tile, :]
        x[tile, :] = 0.0
        out[tile, :] = hl.dot(rows, y[:, :])
