"""Times an implementation, a second copy of it and the baseline in turns; makes fields of a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from tilesmith.bench.rounds import AGAIN, BASELINE, WORK, time_fields
from tilesmith.measure.disturbance import read_meter
from tilesmith.measure.timer import (
    Conditions,
    Timing,
    Work,
    capture_graph,
    time_on_cpu,
    time_on_device,
)

DEVICE_REPEATS, HOST_REPEATS = 100, 15
TIME_LIMIT_S = 10.0
MIN_SAMPLE_MS = 1.0
"""On the host, where clocks and their disturbances are felt below."""
SPARE_S = 2.0
"""On the host, for rounds in the place of disturbed ones."""


@dataclass(frozen=True)
class TimingOptions:
    """How to time."""

    device: torch.device
    is_warm: bool = False
    use_graph: bool = True


@dataclass(frozen=True)
class Timed:
    """Samples by name, and in words how the implementation was timed."""

    timings: Mapping[str, Timing]
    timer: str
    notes: list[str] = field(default_factory=list[str])

    def fields(self) -> dict[str, Any]:
        """Those of a row that are times."""
        return {**time_fields(self.timings), "timer": self.timer}


def time_in_turns(
    work: Work, baseline: Work | None, is_right: Callable[[Work], bool], options: TimingOptions
) -> Timed:
    """Time; ``is_right`` says of the replay of a graph whether it still does the work."""
    works = {WORK: work, AGAIN: work}
    if baseline is not None:
        works[BASELINE] = baseline
    if options.device.type == "cpu":
        conditions = Conditions(time_limit_s=TIME_LIMIT_S, meter=read_meter, spare_s=SPARE_S)
        timings = time_on_cpu(
            works, repeats=HOST_REPEATS, min_sample_ms=MIN_SAMPLE_MS, conditions=conditions
        )
        return Timed(timings, "host clock, in turns")
    conditions = Conditions(is_warm=options.is_warm, time_limit_s=TIME_LIMIT_S)
    ready, notes = _ready(works, is_right) if options.use_graph else (works, [])
    cache = "warm" if options.is_warm else "cold"
    kind = "graph" if ready[WORK] is not work else "events"
    timings = time_on_device(
        ready, device=options.device, repeats=DEVICE_REPEATS, conditions=conditions
    )
    return Timed(timings, f"{kind}, {cache}", notes)


def _ready(
    works: Mapping[str, Work], is_right: Callable[[Work], bool]
) -> tuple[dict[str, Work], list[str]]:
    """Graphs of what can be captured; the two copies are always timed alike."""
    notes: list[str] = []
    found = dict(works)
    copies = [_try_capture(works[name]) for name in (WORK, AGAIN)]
    if None in copies:
        notes.append("no graph can be captured of it")
    elif not all(is_right(graph) for graph in copies if graph is not None):
        notes.append("its graph gives other results than its calls")
    else:
        found |= {name: graph for name, graph in zip((WORK, AGAIN), copies) if graph is not None}
    if BASELINE in works:
        captured = _try_capture(works[BASELINE])
        found[BASELINE] = captured or works[BASELINE]
        notes += ["no graph can be captured of the baseline"] if captured is None else []
    return found, notes


def _try_capture(work: Work) -> Work | None:
    try:
        return capture_graph(work)
    except Exception:  # whatever a library raises in a call that must not synchronise
        torch.cuda.synchronize()
        return None
