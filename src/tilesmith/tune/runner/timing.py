"""Times candidates that were found right, side by side; memory they change is put back each time.

On a GPU a cold cache is the rule. A CPU's caches are cleared only where that costs little: a shared
cache of a hundred megabytes takes longer to clear than most kernels take, and is not ours alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch

from tilesmith.measure.disturbance import is_disturbed, read_meter
from tilesmith.measure.timer import Conditions, Timing, Work, time_on_cpu, time_on_device
from tilesmith.runtime.native.host_cpu import CACHES, last_level_bytes
from tilesmith.tune.jobs import TimeJob, TimeReply
from tilesmith.tune.runner.launching import Place

MIN_SAMPLE_MS = 0.2
"""On a CPU, where a clock and its disturbances are felt below."""
CHEAP_FLUSH_BYTES = 32 << 20
SLOW_MS = 20.0
"""What takes longer needs no untimed call first."""


@dataclass(frozen=True)
class TimedWork:
    """What is timed, and what puts the memory it changes back; None where that is not needed."""

    run: Work
    restore: Work | None = None
    rough_ms: float = 0.0


def time_works(works: Sequence[TimedWork], job: TimeJob, place: Place) -> TimeReply:
    """Samples of each, in order; each run starts from the restored state."""
    named = {str(position): work for position, work in enumerate(works)}
    runs = {name: work.run for name, work in named.items()}
    is_cold = job.regime == "cold"
    flush = None if place.is_gpu or not is_cold else _host_flush()
    prepare = {name: _in_turn(work.restore, flush) for name, work in named.items()}
    conditions = Conditions(
        prepare={name: step for name, step in prepare.items() if step is not None},
        is_warm=not is_cold,
        time_limit_s=job.time_limit_s,
    )
    warmup = 0 if max(work.rough_ms for work in works) > SLOW_MS else 1
    if place.is_gpu:
        timings = time_on_device(
            runs, device=place.device, repeats=job.repeats, warmup=warmup, conditions=conditions
        )
        return TimeReply(_in_order(timings))
    before = read_meter()
    timings = time_on_cpu(
        runs,
        repeats=job.repeats,
        warmup=warmup,
        min_sample_ms=MIN_SAMPLE_MS if flush is None else 0.0,
        conditions=conditions,
    )
    return TimeReply(_in_order(timings), is_disturbed(before, read_meter()))


def _in_order(timings: dict[str, Timing]) -> tuple[tuple[float, ...], ...]:
    return tuple(timing.samples_ms for timing in timings.values())


def _in_turn(*steps: Work | None) -> Work | None:
    """What calls one after the other; None for no step at all."""
    taken = [step for step in steps if step is not None]

    def run() -> None:
        for step in taken:
            step()

    return run if taken else None


@cache
def _host_flush() -> Work | None:
    """What clears the caches of this CPU, if it is cheap."""
    size = last_level_bytes(CACHES)
    if not 0 < size <= CHEAP_FLUSH_BYTES:
        return None
    buffer = torch.zeros(2 * size // 8, dtype=torch.int64)
    return lambda: buffer.add_(1)
