"""Barriers between accesses of one place whose order threads do not keep by themselves."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.targets import cuda_target

BARRIER = "tl.debug_barrier()"
X = torch.empty(4096)


@helion.kernel
def keeps_what_was_there(x, out, before):
    for t in hl.tile(x.size(0)):
        old = out[t]
        out[t] = x[t]
        before[t] = old


@helion.kernel
def changes_in_place(x, out, before):
    for t in hl.tile(x.size(0)):
        out[t] = torch.where(x[t] > 0, out[t] * 2, 1)
        before[t] = x[t]


@helion.kernel
def stores_in_turn(x, out, before):
    for t in hl.tile(x.size(0)):
        out[t] = x[t]
        hl.store(out, [t], x[t] * 2, extra_mask=t.index < 5)
        before[t] = x[t]


@helion.kernel
def one_element(x, out, before):
    for i in hl.grid(x.size(0)):
        old = out[i]
        out[i] = x[i]
        before[i] = old


def lines(kernel: Any, **config: Any) -> list[str]:
    args = (X, torch.empty(4096), torch.empty(4096))
    bound = kernel.bind(args, target=cuda_target(90))
    text = bound.to_triton_code(helion.Config(num_warps=4, **config))
    return [line.strip() for line in text.splitlines()]


@pytest.mark.parametrize(
    ("kernel", "size", "count"),
    [
        # Nothing of the store comes from the load: another thread may store before it is loaded.
        (keeps_what_was_there, 16, 1),
        (keeps_what_was_there, 1024, 1),
        # Each element has one thread, which has loaded it before it stores.
        (changes_in_place, 1024, 0),
        # Several threads load an element, one of them stores it.
        (changes_in_place, 64, 1),
        (stores_in_turn, 1024, 0),
        (stores_in_turn, 64, 1),
    ],
)
def test_threads_meet_where_one_may_be_late(kernel: Any, size: int, count: int):
    assert lines(kernel, block_sizes=[size]).count(BARRIER) == count


def test_all_threads_load_a_number_that_one_stores():
    text = lines(one_element)
    (barrier,) = (i for i, line in enumerate(text) if line == BARRIER)
    (store,) = (i for i, line in enumerate(text) if line.startswith("tl.store(out "))
    (load,) = (i for i, line in enumerate(text) if "tl.load(out " in line)
    assert load < barrier < store


@helion.kernel(static_shapes=False)
def rows_of_any_length(x, out, before):
    for t in hl.tile(x.size(0), block_size=16):
        out[t, :] = torch.where(x[t, :] > 0, out[t, :] * 2, 1)
        before[t, :] = x[t, :]


@pytest.mark.parametrize("columns", [8, 1024])
def test_tiles_of_runtime_sizes_may_be_small(columns: int):
    """One code serves all sizes: 16x1024 elements of the first call, 16x4 of another."""
    args = [torch.empty(64, columns) for _ in range(3)]
    bound = rows_of_any_length.bind(tuple(args), target=cuda_target(90))
    text = bound.to_triton_code(helion.Config(num_warps=4))
    assert [line.strip() for line in text.splitlines()].count(BARRIER) == 1
