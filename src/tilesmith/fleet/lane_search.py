"""One slot on one lane: the ordinary search, with records that lanes share."""

from __future__ import annotations

import logging
import threading
from contextlib import ExitStack
from dataclasses import replace

from typing_extensions import override

from tilesmith.fleet.records import Claims, SharedArchive
from tilesmith.fleet.work import Lane, LaneReport, Slot
from tilesmith.store.outcome import Candidate
from tilesmith.tune.autotune import SINGLE
from tilesmith.tune.context import Deadline, EmittedCandidate
from tilesmith.tune.listener import History, SafeListener
from tilesmith.tune.options import TuneOptions
from tilesmith.tune.search_run import SearchRun
from tilesmith.tune.workspace import Workspace

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
    changes = {
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
        workspace = LaneWorkspace(cases, options, SINGLE, deadline, stack, lane.place)
        run = SearchRun(cases, options, archive, SafeListener([history]), workspace)
        result = run.run()
    measured = [trial.outcome for trial in history.timed if not trial.outcome.is_recalled]
    return LaneReport(lane.name, result, tuple(measured), history.default_ms)
