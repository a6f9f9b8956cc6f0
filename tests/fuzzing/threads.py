"""How many threads share the work of a case."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from tests.fuzzing.program import Program
from tilesmith.backends.cpu.emission import context

LARGE = 500
"""Sizes above are those that make enough work for several threads."""
SHARED_SHARE = 6
"""Kernels of one seed in so many give threads parts of any amount of work."""


@contextmanager
def threads_for(program: Program, seed: int) -> Iterator[None]:
    """Large shapes run on 2 to 5 threads; kernels of some seeds share even little work."""
    before = torch.get_num_threads(), context.MIN_PARALLEL_WORK
    shares_little = seed % SHARED_SHARE == 1
    is_shared = shares_little or max(program.sizes.values()) > LARGE
    torch.set_num_threads(2 + seed // SHARED_SHARE % 4 if is_shared else 1)
    context.MIN_PARALLEL_WORK = 1 if shares_little else before[1]
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        context.MIN_PARALLEL_WORK = before[1]
