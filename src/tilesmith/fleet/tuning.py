"""Tunes several kernels, for several sets of arguments, on all devices of a machine or cluster.

Every kind of device gets a search and a winner of its own. The driver keeps journal and winners;
it needs no device itself: arguments may lie on its CPU while GPUs elsewhere measure.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from typing_extensions import override

import tilesmith.exc as errors
from tilesmith.fleet.lanes import cluster_lanes, connect, local_lanes
from tilesmith.fleet.ray_lane import has_gpus
from tilesmith.fleet.records import Claims, SharedArchive
from tilesmith.fleet.scheduler import Fleet, FleetResult, require_results
from tilesmith.fleet.work import FleetError, Kind, Lane, LaneReport, Slot, Task
from tilesmith.jit.kernel import Kernel
from tilesmith.jit.tuner import MultiRequest, TuneRequest
from tilesmith.runtime.device import device_targets
from tilesmith.settings import ray_address
from tilesmith.store.outcome import Candidate
from tilesmith.store.winners import Winner
from tilesmith.tune.context import Case, Deadline, EmittedCandidate
from tilesmith.tune.listener import History, SafeListener
from tilesmith.tune.options import TuneOptions, options_from_settings
from tilesmith.tune.result import StopReason, TuneResult
from tilesmith.tune.search_run import SearchRun
from tilesmith.tune.workspace import Workspace

LOCAL = "local"
Job = tuple[Kernel[..., Any], tuple[Any, ...]]


@dataclass(frozen=True)
class FleetRequest:
    """Where and how to search."""

    on: str = LOCAL
    """``local``, ``local:N``, ``ray`` (RAY_ADDRESS, or the cluster of this machine), or an address
    of Ray: ``ray://host:port``, ``host:port``."""
    request: TuneRequest = field(default_factory=TuneRequest)
    device: str = ""
    """``cuda`` or ``cpu``; empty: GPUs where there are any."""
    tell: Callable[[str], None] = lambda _: None
    """Gets a line where something ends."""


EMISSION = threading.Lock()
"""Kernels are traced and printed by one thread at a time; it is Python that takes the time."""


class LaneWorkspace(Workspace):
    """A workspace whose use of the compiler takes turns with those of other lanes."""

    @override
    def capture(self) -> None:
        with EMISSION:
            super().capture()

    @override
    def emit(self, candidate: Candidate) -> EmittedCandidate:
        with EMISSION:
            return super().emit(candidate)


def lane_options(slot: Slot, claims: Claims) -> TuneOptions:
    """The options of a task as one slot searches by them."""
    options = slot.task.options
    settings = options.settings
    changes: dict[str, Any] = {
        "autotune_random_seed": options.seed + slot.number,
        "autotune_log_level": max(options.settings.autotune_log_level, logging.WARNING),
    }
    if not slot.finalists:
        keep = claims.filter(slot.number, settings.autotune_config_filter)
        changes["autotune_config_filter"] = keep
    changed = replace(options, settings=replace(settings, **changes), budget_s=slot.budget_s)
    return replace(changed, configs=slot.finalists) if slot.finalists else changed


def search_slot(
    slot: Slot, lane: Lane, archive: SharedArchive, claims: Claims, deadline: Deadline
) -> LaneReport:
    """Search until the slot's budget ends, or the lane is lost."""
    options, history = lane_options(slot, claims), History()
    cases = [slot.task.case]
    with ExitStack() as stack:
        workspace = LaneWorkspace(
            cases, options, MultiRequest(TuneRequest()), deadline, stack, lane.place
        )
        run = SearchRun(cases, options, archive, SafeListener([history]), workspace)
        result = run.run()
    measured = [trial.outcome for trial in history.timed if not trial.outcome.is_recalled]
    return LaneReport(lane.name, result, tuple(measured), history.default_ms)


def tune_fleet(jobs: Sequence[Job], wanted: FleetRequest) -> list[FleetResult]:
    """Search all jobs on all kinds of device; FleetError where no worker can be had."""
    if not jobs:
        raise FleetError("there is nothing to tune")
    with ExitStack() as stack:
        lanes = open_lanes(jobs, wanted, stack)
        kinds = list(dict.fromkeys(lane.kind for lane in lanes))
        tasks = [make_task(job, kind, wanted.request) for kind in kinds for job in jobs]
        known = {n: stored_result(task, wanted.request) for n, task in enumerate(tasks)}
        left = [task for n, task in enumerate(tasks) if known[n] is None]
        fleet = Fleet(left, lanes, wanted.tell, search_slot)
        found = iter(fleet.run() if left else [])
        results = [known[n] or next(found) for n in range(len(tasks))]
        if fleet.is_stopped:
            raise KeyboardInterrupt
        require_results(results)
        return results


def open_lanes(jobs: Sequence[Job], wanted: FleetRequest, stack: ExitStack) -> list[Lane]:
    """The devices to search on; given back with the stack."""
    if wanted.on.partition(":")[0] == LOCAL:
        devices = device_targets(wanted.device or jobs[0][0].bind(jobs[0][1]).device.type)
        found: list[Lane] = list(local_lanes(wanted.on, devices))
    else:
        ray = connect(wanted.on, ray_address())
        device = wanted.device or ("cuda" if has_gpus(ray) else "cpu")
        lanes, problems = cluster_lanes(ray, device)
        for problem in dict.fromkeys(problems):
            wanted.tell(f"left out: {problem}")
        found = [*lanes]
    for lane in found:
        stack.callback(lane.close)
    return found


def make_task(job: Job, kind: Kind, request: TuneRequest) -> Task:
    """A kernel with arguments, bound for a kind of device."""
    kernel, given = job
    if kernel.staged is not None:
        problem = "it has several launches"
        raise errors.AutotuneError(
            function=kernel.name, problem=problem, fix="tune it here: kernel.autotune(args)"
        )
    args = kernel.definition.arguments.complete(given)
    own = kernel.bind(args)
    bound = own if own.target == kind.target else kernel.bind(args, target=kind.target)
    options = options_from_settings(bound.settings, request.keywords, request.budget_s)
    return Task(Case(bound, args), kind, options)


def stored_result(task: Task, request: TuneRequest) -> FleetResult | None:
    """What an earlier search has found for this kind of device, unless a new one is wanted."""
    if request.is_forced:
        return None
    winner: Winner | None = SharedArchive(task).find_winner()
    if winner is None:
        return None
    found = TuneResult(winner.config, StopReason.CACHED, ms=winner.median_ms, spread=winner.spread)
    return FleetResult(task, found, 0, ())
