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
