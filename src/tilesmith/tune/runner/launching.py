"""Launches a candidate on its tensors, once or for timing.

The launchers are those of ordinary calls, so what is timed is what a user gets: the same code path,
allocator, cooperative grids. Only where the values come from differs: host code is not run, they
are looked up by parameter. On a GPU a cold cache is the rule. A CPU's caches are cleared only where
that costs little: clearing a shared cache of a hundred megabytes takes longer than most kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch

from tilesmith.measure.disturbance import read_meter
from tilesmith.measure.timer import Conditions, Work, time_on_cpu, time_on_device
from tilesmith.runtime.arguments import LaunchOptions, make_launch_tensor
from tilesmith.runtime.launchers.cpu import native_launcher
from tilesmith.runtime.launchers.in_order import triton_launcher
from tilesmith.runtime.launchers.triton import TritonLauncher
from tilesmith.runtime.native.host_cpu import CACHES, last_level_bytes
from tilesmith.store.outcome import UNKNOWN_RESOURCES, Resources
from tilesmith.tune.jobs import Program, TimeJob, TimeReply

MIN_SAMPLE_MS = 0.2
"""On a CPU, where a clock and its disturbances are felt below."""
CHEAP_FLUSH_BYTES = 32 << 20
"""Caches up to this size are cleared before each cold sample."""
SLOW_MS = 20.0
"""What takes longer needs no untimed call first."""


@dataclass(frozen=True)
class LaunchPlace:
    """Where kernels run, and where their code is kept."""

    device: torch.device
    cache_dir: Path
    num_threads: int = 0
    """0: as many as torch uses."""

    @property
    def is_asynchronous(self) -> bool:
        """Whether launches return before they are done."""
        return self.device.type != "cpu"

    def synchronize(self) -> None:
        """Wait for what was launched; raises what went wrong on the device."""
        if self.is_asynchronous:
            torch.cuda.synchronize(self.device)


@dataclass(frozen=True)
class Launch:
    """One candidate, ready to run on the tensors of a workload."""

    run: Callable[[], None]
    resources: Callable[[], Resources]
    """What it takes of the device; known when it has run."""


def make_launch(program: Program, values: Mapping[str, Any], place: LaunchPlace) -> Launch:
    """A launch of a program; ``values`` gives a tensor or number to each parameter."""
    parameters = program.artifact.parameters
    slots = [f"value_{position}" for position in range(len(parameters))]
    ordered = tuple(
        make_launch_tensor(p, place.device) if p.is_made_at_launch else values[p.name]
        for p in parameters
    )
    renamed = tuple(replace(p, source=slot) for p, slot in zip(parameters, slots))
    artifact = replace(program.artifact, parameters=renamed)
    counters = [x for x, p in zip(ordered, parameters) if p.is_zeroed]
    keyed = frozenset(slots)
    options = LaunchOptions(place.cache_dir, place.device, keyed, num_threads=place.num_threads)
    gpu_launcher = None
    if program.launch is not None:
        launch = program.launch(artifact)
    elif artifact.backend == "cpu":
        launch = native_launcher(artifact, slots, (), options)
    else:
        gpu_launcher = triton_launcher(artifact, slots, (), options)
        launch = gpu_launcher.launch

    def run() -> None:
        for counter in counters:
            counter.zero_()
        launch(*ordered)

    return Launch(run, partial(_resources, gpu_launcher))


def _resources(launcher: TritonLauncher | None) -> Resources:
    if launcher is None or not launcher.kernels:
        return UNKNOWN_RESOURCES
    kernel = launcher.kernels[0]
    shared = getattr(kernel.metadata, "shared", None)
    return Resources(shared, getattr(kernel, "n_regs", None), getattr(kernel, "n_spills", None))


@dataclass(frozen=True)
class TimedWork:
    """What is timed, and what puts the memory it changes back; None where that is not needed."""

    run: Work
    restore: Work | None = None
    rough_ms: float = 0.0


def time_works(works: Sequence[TimedWork], job: TimeJob, place: LaunchPlace) -> TimeReply:
    """Samples of each, in order; each run starts from the restored state."""
    named = {str(position): work for position, work in enumerate(works)}
    runs = {name: work.run for name, work in named.items()}
    flush = None if place.is_asynchronous else _host_flush()
    prepare = {name: _in_turn(work.restore, flush) for name, work in named.items()}
    steps = {name: step for name, step in prepare.items() if step is not None}
    meter = None if place.is_asynchronous else read_meter
    conditions = Conditions(steps, time_limit_s=job.time_limit_s, meter=meter)
    warmup = 0 if max(work.rough_ms for work in works) > SLOW_MS else 1
    rounds: dict[str, Any] = {"repeats": job.repeats, "warmup": warmup, "conditions": conditions}
    if place.is_asynchronous:
        timings = time_on_device(runs, device=place.device, **rounds)
        return TimeReply(tuple(timing.samples_ms for timing in timings.values()))
    min_sample_ms = MIN_SAMPLE_MS if flush is None else 0.0
    timings = time_on_cpu(runs, min_sample_ms=min_sample_ms, **rounds)
    samples = tuple(timing.samples_ms for timing in timings.values())
    # Of one program half: its median is then a time of the scheduler.
    marks = [timing.disturbed for timing in timings.values()]
    return TimeReply(samples, any(2 * sum(of_one) >= len(of_one) for of_one in marks))


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
