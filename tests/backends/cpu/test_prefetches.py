"""Which loads fetch ahead: rows that are read again, and sums of what no cache holds."""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.host_backends import on_backend

FETCHES = "fetches x ahead"


@helion.kernel
def sums(x):
    out = x.new_empty(x.size(0))
    for t in hl.tile(x.size(0)):
        out[t] = x[t, :].sum(-1)
    return out


@helion.kernel
def walked(x):
    out = x.new_empty(x.size(0))
    for t in hl.tile(x.size(0)):
        total = hl.zeros([t], dtype=torch.float32)
        for u in hl.tile(x.size(1), block_size=1024):
            total = total + x[t, u].sum(-1)
        out[t] = total
    return out


@helion.kernel
def apart(x):
    out = x.new_empty(x.size(0))
    for t in hl.tile(x.size(0)):
        row = x[t, :]
        out[t] = (row - row.amax(-1)[:, None]).sum(-1)
    return out


def code(kernel, rows: int, columns: int) -> str:  # type: ignore[no-untyped-def]
    x = torch.empty(rows, columns)  # whose pages nobody touches
    bound = on_backend(kernel, "cpu").bind((x,))
    return bound.to_code(helion.Config(block_sizes=[1]), form="loops")


def test_a_sum_of_what_a_cache_holds_fetches_nothing() -> None:
    assert FETCHES not in code(sums, 100, 4096)


def test_a_sum_of_more_fetches_from_the_next_page() -> None:
    assert FETCHES in code(sums, 4096, 4096)
    assert FETCHES in code(sums, 16, 1 << 20)


def test_so_does_one_in_a_loop_of_the_program() -> None:
    assert FETCHES in code(walked, 4096, 4096)
    assert FETCHES not in code(walked, 100, 4096)


def test_a_row_that_is_read_again_is_fetched_where_no_cache_holds_it() -> None:
    text = code(apart, 4096, 4096)
    assert text.count(FETCHES) == 1
    assert text.index(FETCHES) > text.index("max(")
    assert FETCHES not in code(apart, 100, 4096)


@helion.kernel
def powers(x):
    out = x.new_empty(x.size(0))
    for t in hl.tile(x.size(0)):
        row = x[t, :]
        out[t] = torch.exp(row - row.amax(-1)[:, None]).sum(-1)
    return out


def test_functions_take_longer_than_fetching() -> None:
    assert FETCHES in code(powers, 100, 4096)


def test_rows_of_unknown_number_are_fetched() -> None:
    kernel = helion.kernel(apart.fn, static_shapes=False)
    assert FETCHES in code(kernel, 100, 4096)
