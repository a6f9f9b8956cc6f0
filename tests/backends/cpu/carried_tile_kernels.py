"""Kernels with tiles that loops and branches hand on: swapped, doubled, turned, chosen."""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl


@helion.kernel
def fibonacci(x, y, steps: int):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        a, b = x[t], y[t]
        for _ in range(steps):
            a, b = b, a + b
        out[t] = a * 1000 + b
    return out


@helion.kernel
def swapped(x, y, steps: int):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        a, b = x[t], y[t]
        for _ in range(steps):
            a, b = b, a
        out[t] = a * 1000 + b
    return out


@helion.kernel
def rotated(x, y, steps: int):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        a, b, c = x[t], y[t], x[t] + y[t]
        for step in range(steps):
            a, b, c = b, c, a + step
        out[t] = (a * 100 + b) * 100 + c
    return out


@helion.kernel
def handed_on_twice(x, y, steps: int):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        a, b = x[t], y[t]
        for _ in range(steps):
            both = a - 2 * b
            a, b = both, both
        out[t] = a * 1000 + b
    return out


@helion.kernel
def one_stays_behind(x, y, steps: int):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        before, now = x[t], y[t]
        for _ in range(steps):
            before, now = now, now + 3
        out[t] = before * 1000 + now
    return out


@helion.kernel
def unchanged(x, y, steps: int):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        a, b = x[t], y[t]
        for step in range(steps):
            b = b + a
            if step > 100:
                a = a + 1
        out[t] = a * 1000 + b
    return out


@helion.kernel
def loop_in_a_loop(x, y, steps: int):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        a, b = x[t], y[t]
        for _ in range(steps):
            for _ in range(2):
                a, b = b, a + 1
            a = a + b
        out[t] = a * 1000 + b
    return out


@helion.kernel
def loops_that_cross(x, y, steps: int):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        a, b = x[t], y[t]
        for step in range(steps):
            for _ in range(2):
                a = a + 1
            for _ in range(step):
                b = b - 2
            a, b = b, a
        out[t] = a * 1000 + b
    return out


@helion.kernel
def chosen_per_step(x, y, steps: int):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        a, b = x[t], y[t]
        for step in range(steps):
            if step % 2 == 0:
                a, b = b + 1, a
            else:
                a = a * 2
        out[t] = a * 1000 + b
    return out


@helion.kernel
def turned(x):
    out = torch.empty_like(x)
    rows, columns = hl.specialize(x.size(1)), hl.specialize(x.size(2))
    for _ in hl.grid(1):
        state = hl.zeros([rows, columns], dtype=x.dtype)
        for i in range(x.size(0)):
            state = state.t() + x[i, :, :]
            out[i, :, :] = state
    return out


@helion.kernel
def turned_after_a_loop(x):
    out = torch.empty_like(x)
    rows, columns = hl.specialize(x.size(1)), hl.specialize(x.size(2))
    for _ in hl.grid(1):
        state = hl.zeros([rows, columns], dtype=x.dtype)
        other = hl.zeros([rows, columns], dtype=x.dtype)
        for i in range(x.size(0)):
            for j in range(i + 1):
                state = state + x[j, :, :]
            other, state = other + state.t(), state.t() - 1
            out[i, :, :] = state + 3 * other
    return out


@helion.kernel
def powers(x):
    out = torch.empty_like(x)
    for _ in hl.grid(1):
        now, before = x[0, :, :], x[1, :, :]
        for i in range(x.size(0)):
            now, before = hl.dot(now, before) % 7, now
            out[i, :, :] = now
    return out


@helion.kernel
def accumulated(x):
    out = torch.empty_like(x)
    for _ in hl.grid(1):
        total = x[0, :, :] * 0
        last = x[0, :, :]
        for i in range(x.size(0)):
            total = hl.dot(x[i, :, :], last, acc=total)
            last = x[i, :, :] - 1
        out[0, :, :] = total
        out[1, :, :] = last
    return out


@helion.kernel
def halved_until_small(x, limits):
    out = torch.empty_like(x)
    count = torch.zeros([x.size(0)], dtype=torch.int32, device=x.device)
    for i in hl.grid(x.size(0)):
        row, other = x[i, :], x[i, :] * 3
        steps = hl.zeros([], dtype=torch.int32)
        while row.amax() > limits[i]:
            row, other = other - row * 2 - 50, row
            steps = steps + 1
        count[i] = steps
        out[i, :] = row * 10 + other
    return out, count


@helion.kernel
def branches(x, flags):
    out = torch.empty_like(x)
    for i in hl.grid(x.size(0)):
        row = x[i, :]
        total = row.sum()
        if flags[i] == 0:
            row, other = row + total, row
        elif flags[i] == 1:
            other = torch.cumsum(row, 0)
        else:
            other = row * 2
            row = other
        out[i, :] = row * 1000 + other
    return out


@helion.kernel
def tiles_of_two_loops(x, y):
    out = torch.zeros([x.size(0)], dtype=x.dtype, device=x.device)
    for t in hl.tile(x.size(0)):
        best = hl.full([t], -1000000, dtype=x.dtype)
        before = best
        for u in hl.tile(y.size(0)):
            before = best
            pairs = x[t][:, None] * 3 - y[u][None, :] * y[u][None, :]
            best = torch.maximum(best, pairs.amax(1))
        out[t] = best * 1000 + before
    return out


@helion.kernel
def kept_beyond_the_last_tile(x):
    block = hl.register_block_size(x.size(1))
    out = torch.zeros([x.size(0), 4], dtype=x.dtype, device=x.device)
    for i in hl.grid(x.size(0)):
        total = hl.full([block], 2, dtype=x.dtype)
        for u in hl.tile(x.size(1), block_size=block):
            total = total + x[i, u]
        out[i, 0] = total.sum()
        out[i, 1] = total.amax()
        out[i, 2] = total.amin()
        out[i, 3] = block
    return out
