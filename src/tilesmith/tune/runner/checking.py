"""Runs a candidate twice from the workload's initial state and judges what it leaves behind.

Nothing is timed that was not found right first. After a fault of the device its context is lost:
the process must not be used again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from tilesmith.lab.failures import classify, one_line
from tilesmith.lab.workload.loading import Snapshot, Workload
from tilesmith.store.outcome import Verdict
from tilesmith.tune.jobs import CheckJob, CheckReply
from tilesmith.tune.runner.launching import Launch, Place, make_launch

FindFault = Callable[[CheckJob], str]
"""What is wrong with the results in the workload's memory, in one line; "" where they are right."""


@dataclass(frozen=True)
class Checked:
    """The reply to a check, and the launch if it may be timed."""

    reply: CheckReply
    launch: Launch | None = None
    is_device_lost: bool = False


class Checker:
    """Checks candidates against one judge."""

    def __init__(
        self, workload: Workload, place: Place, find_fault: FindFault, *, may_differ: bool = False
    ) -> None:
        self._workload = workload
        self._place = place
        self._find_fault = find_fault
        self._may_differ = may_differ
        """Whether bits may change from run to run, where the order of atomics decides them."""

    def check(self, job: CheckJob) -> Checked:
        """Run a candidate; an exception is a verdict too."""
        try:
            return self._run_and_judge(job)
        except Exception as error:
            verdict, reason = classify(error, Verdict.RUN_ERROR)
            if is_device_lost(self._place):
                reply = CheckReply(Verdict.CRASHED, f"the device is lost: {one_line(error)}")
                return Checked(reply, is_device_lost=True)
            if verdict is Verdict.OUT_OF_MEMORY and self._place.is_gpu:
                torch.cuda.empty_cache()
            return Checked(CheckReply(verdict, reason))

    def _run_and_judge(self, job: CheckJob) -> Checked:
        artifact, binding = job.program.artifact, job.program.binding
        launch = make_launch(artifact, self._workload.arguments(binding), self._place)
        self._run(launch, job)
        problem = self._find_fault(job)
        if problem:
            return _rejected(Verdict.WRONG, problem, launch)
        first = self._workload.snapshot(binding)
        first_ms = self._run(launch, job)
        verdict, problem = self._judge_repeat(job, first)
        if problem:
            return _rejected(verdict, problem, launch)
        return Checked(CheckReply(Verdict.OK, "", first_ms, launch.resources()), launch)

    def _run(self, launch: Launch, job: CheckJob) -> float:
        """One run from the initial state; its time in milliseconds."""
        self._workload.restore(job.program.binding)
        self._place.synchronize()
        start = time.perf_counter()
        launch.run()
        self._place.synchronize()
        return (time.perf_counter() - start) * 1e3

    def _judge_repeat(self, job: CheckJob, first: Snapshot) -> tuple[Verdict, str]:
        """The second run must give the bits of the first, or at least be right where it may not."""
        binding = job.program.binding
        second = self._workload.snapshot(binding)
        if first.is_same(second):
            return Verdict.OK, ""
        if self._may_differ:
            return Verdict.WRONG, self._find_fault(job)
        difference = self._workload.describe_difference(binding, first, second)
        return Verdict.NONDETERMINISTIC, f"two runs differ in {difference}"


def is_device_lost(place: Place) -> bool:
    """Whether the device answers nothing but errors any more."""
    if not place.is_gpu:
        return False
    try:
        place.synchronize()
        torch.ones(1, device=place.device).item()
    except torch.OutOfMemoryError:
        return False
    except Exception:
        return True
    return False


def _rejected(verdict: Verdict, reason: str, launch: Launch) -> Checked:
    return Checked(CheckReply(verdict, reason, resources=launch.resources()))
