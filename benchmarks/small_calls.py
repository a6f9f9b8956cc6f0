"""What one call costs when there is next to nothing to compute: addition of 1024 elements."""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from benchmarks.cpu_row import SmallCalls
from benchmarks.quiet_rounds import run_rounds
from examples.add import add
from tilesmith.measure.timer import Work

SIZE = 1024
MIN_SAMPLE_MS = 20.0
CALLS_BEFORE = 500


@helion.kernel
def plain_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """As little host code as a kernel can have."""
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = x[tile] + y[tile]
    return out


def measure_small_calls(rounds: int, *, use_compile: bool) -> SmallCalls:
    """Ours, eager and compiled, interleaved."""
    x, y = torch.randn(SIZE), torch.randn(SIZE)
    works: dict[str, Work] = {
        "ours": lambda: plain_add(x, y),
        "example": lambda: add(x, y),
        "eager": lambda: torch.add(x, y),
    }
    if use_compile:
        compiled = torch.compile(torch.add, dynamic=False)
        works["compiled"] = lambda: compiled(x, y)
    for work in works.values():
        for _ in range(CALLS_BEFORE):
            work()
    timed = run_rounds(works, rounds=rounds, min_sample_ms=MIN_SAMPLE_MS)
    times = {name: timed.median_ms(name) * 1e3 for name in works}
    return SmallCalls(times["ours"], times["example"], times["eager"], times.get("compiled"))
