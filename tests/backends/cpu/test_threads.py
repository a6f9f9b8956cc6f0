"""Every program runs exactly once, on any number of threads, in ranges or in turns."""

from __future__ import annotations

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.host_backends import on_backend

PRIME = 1009
WIDTH = 64
"""Elements of one program: a thousand of them are worth several threads."""
BEYOND = 128
"""Rows after the last program's: more than a thread takes in one turn."""


@helion.kernel
def increase_rows(x):
    for row in hl.grid(x.size(0)):
        x[row, :] = x[row, :] + 1
    return x


@helion.kernel
def increase_tiles(x):
    for tile in hl.tile(x.size(0)):
        x[tile, :] = x[tile, :] + 1
    return x


@pytest.fixture
def num_threads(request: pytest.FixtureRequest):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("order", ["static", "dynamic"])
@pytest.mark.parametrize("num_threads", [1, 2, 3, 7], indirect=True)
@pytest.mark.parametrize("programs", [1001, PRIME, 1024])
def test_every_program_runs_once(num_threads: int, programs: int, order: str) -> None:
    # 1001 programs on two threads leave one over: equal ranges would drop the last.
    storage = torch.zeros(programs + BEYOND, WIDTH)
    x = storage[:programs]
    bound = on_backend(increase_rows, "cpu").bind((x,))
    bound.compile_config(helion.Config(cpu_schedule=order))(x)
    assert torch.equal(x, torch.ones(programs, WIDTH))
    assert not storage[programs:].any()


@pytest.mark.parametrize("num_threads", [2], indirect=True)
def test_the_last_range_ends_with_a_partial_tile(num_threads: int) -> None:
    x = torch.zeros(4 * PRIME + 3, WIDTH)
    config = helion.Config(block_sizes=[4], cpu_schedule="static")
    found = on_backend(increase_tiles, "cpu").bind((x,)).compile_config(config)(x)
    assert torch.equal(found, torch.ones_like(found))


@pytest.mark.parametrize("num_threads", [5], indirect=True)
def test_more_threads_than_programs(num_threads: int) -> None:
    x = torch.zeros(3, 40_000)
    config = helion.Config(cpu_schedule="static")
    found = on_backend(increase_rows, "cpu").bind((x,)).compile_config(config)(x)
    assert torch.equal(found, torch.ones_like(found))


@helion.kernel
def sums_that_wait(x: torch.Tensor, lock: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A lock that programs take in turn, and a loop that waits for all of the one before it."""
    total = torch.zeros([1], dtype=torch.float64)
    out = torch.empty_like(x)
    for row in hl.grid(x.size(0)):
        part = x[row, :].to(torch.float64).sum()
        while hl.atomic_cas(lock, [0], 0, 1, sem="acquire") != 0:
            pass
        total[0] = total[0] + part
        hl.atomic_xchg(lock, [0], 0, sem="release")
    hl.barrier()
    for row in hl.grid(x.size(0)):
        out[row, :] = x[row, :] + total[0].to(torch.float32)
    return out, total


@pytest.mark.parametrize("order", ["static", "dynamic"])
@pytest.mark.parametrize("num_threads", [1, 2, 16], indirect=True)
def test_programs_that_wait_end_on_any_number_of_threads(num_threads: int, order: str) -> None:
    """One thread runs all programs in turn; sixteen are more than most machines have cores."""
    x = (torch.arange(600 * WIDTH) % 7).float().reshape(600, WIDTH)
    args = (x, torch.zeros(1, dtype=torch.int32))
    bound = on_backend(sums_that_wait, "cpu").bind(args)
    out, total = bound.compile_config(helion.Config(cpu_schedule=order))(*args)
    assert total.item() == x.double().sum().item()
    assert torch.equal(out, x + x.sum())
