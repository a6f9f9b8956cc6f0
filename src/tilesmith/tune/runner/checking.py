"""Runs a candidate twice from the workload's initial state and judges what it leaves behind.

It is judged by the kernel's own fp64 reference if there is one, else by the results of the user's
function, else by those of the first candidate that runs. Nothing is timed that was not found right
first. After a fault of the device its context is lost: the process must not be used again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from tilesmith.lab.failures import classify, one_line
from tilesmith.lab.workload.loading import Snapshot, Workload, load_expected
from tilesmith.numerics.judge import Judge
from tilesmith.numerics.judge_report import Tolerance
from tilesmith.numerics.oracle import (
    NoReferenceError,
    OracleOptions,
    Reference,
    work_out_reference,
)
from tilesmith.store.outcome import Verdict
from tilesmith.tune.jobs import (
    CheckJob,
    CheckReply,
    PrepareJob,
    PrepareReply,
    Program,
    ReferenceJob,
)
from tilesmith.tune.runner.launching import Launch, LaunchPlace, make_launch

FindFault = Callable[[CheckJob], str]
"""What is wrong with the results in the workload's memory, in one line; "" where they are right."""
OWN_TIME_LIMIT_S = 5.0
"""For the reference of a single candidate."""
Outputs = Mapping[str, torch.Tensor]
Shapes = tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True)
class Checked:
    """The reply to a check, and the launch if it may be timed."""

    reply: CheckReply
    launch: Launch | None = None
    is_device_lost: bool = False


class Checker:
    """Checks candidates against one judge."""

    def __init__(
        self,
        workload: Workload,
        place: LaunchPlace,
        find_fault: FindFault,
        *,
        may_differ: bool = False,
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
            if verdict is Verdict.OUT_OF_MEMORY and self._place.is_asynchronous:
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


def is_device_lost(place: LaunchPlace) -> bool:
    """Whether the device answers nothing but errors any more."""
    if not place.is_asynchronous:
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


def make_judge(job: PrepareJob, workload: Workload) -> tuple[FindFault, PrepareReply]:
    """What finds faults of candidates on a workload, and a description of it."""
    if not job.is_checked:
        return lambda _: "", PrepareReply("nothing", "results are not to be checked")
    tolerance = _tolerance(job)
    if job.expected is not None:
        expected = load_expected(job.expected, workload.device)
        by_expected = JudgeByResults(workload, tolerance, expected)
        return by_expected.find_fault, PrepareReply("the baseline function")
    by_first = JudgeByResults(workload, tolerance)
    if job.reference is None:
        return by_first.find_fault, PrepareReply("first candidate", "there is no reference")
    finder = ReferenceFinder(workload, tolerance)
    try:
        reference, judge = finder.find(job.reference, job.time_limit_s)
    except NoReferenceError as error:
        return by_first.find_fault, PrepareReply("first candidate", str(error))
    by_reference = JudgeByReference(finder, job.reference, reference, judge, by_first)
    return by_reference.find_fault, PrepareReply(str(reference), reference.reason)


@dataclass(frozen=True)
class ReferenceFinder:
    """Works out references on a workload."""

    workload: Workload
    tolerance: Tolerance | None

    def find(self, job: ReferenceJob, time_limit_s: float) -> tuple[Reference, Judge]:
        """Interpret the kernel on the workload; NoReferenceError if that fails for any reason."""
        options = OracleOptions(job.max_programs, job.seed, time_limit_s)
        # From the state that candidates start from: what they leave alone must look the same.
        self.workload.restore(job.binding)
        arguments = self.workload.arguments(job.binding)
        try:
            reference = work_out_reference(job.function, arguments, dict(job.sizes), options)
            return reference, Judge(reference, self.tolerance)
        except NoReferenceError:
            raise
        except Exception as error:
            raise NoReferenceError(f"the reference failed: {one_line(error)}") from error


class JudgeByReference:
    """Judges by the kernel's reference; a candidate may bring one of its own."""

    def __init__(
        self,
        finder: ReferenceFinder,
        job: ReferenceJob,
        reference: Reference,
        judge: Judge,
        otherwise: JudgeByResults,
    ) -> None:
        self._finder = finder
        self._workload = finder.workload
        self._job = job
        self._judge = judge
        self._shapes = _shapes({name: x.native for name, x in reference.tensors.items()})
        self._otherwise = otherwise

    def find_fault(self, job: CheckJob) -> str:
        """What is wrong with the results of a candidate."""
        if job.reference is not None:
            return self._find_by_own(job.program, job.reference)
        outputs = self._outputs(job.program, self._job)
        judged = {name: outputs[name] for name, _ in self._shapes if name in outputs}
        if _shapes(judged) != self._shapes:
            # Host code made other tensors for this Config than for that of the reference.
            return self._otherwise.find_fault(job)
        return self._judge.check(outputs).reason

    def _find_by_own(self, program: Program, job: ReferenceJob) -> str:
        outputs = {name: x.clone() for name, x in self._outputs(program, job).items()}
        return self._finder.find(job, OWN_TIME_LIMIT_S)[1].check(outputs).reason

    def _outputs(self, program: Program, job: ReferenceJob) -> Outputs:
        """What a candidate has written, by the names of the reference."""
        if program.binding.extra_storages is None:
            return self._workload.outputs(job.binding)
        written = self._workload.outputs(program.binding)
        parameters = program.artifact.parameters
        by_source = {p.source: written[p.name] for p in parameters if p.name in written}
        named = {p.value.name: p.source for p in job.function.parameters}
        return {name: by_source[source] for name, source in named.items() if source in by_source}


class JudgeByResults:
    """Judges by results from elsewhere; without any, by those of the first candidate."""

    def __init__(
        self,
        workload: Workload,
        tolerance: Tolerance | None,
        expected: Sequence[torch.Tensor] | None = None,
    ) -> None:
        self._workload = workload
        self._tolerance = tolerance
        self._expected = expected
        self._judges: dict[Shapes, Judge] = {}

    def find_fault(self, job: CheckJob) -> str:
        """What is wrong with the results of a candidate; nothing, if it is the first."""
        outputs = self._workload.outputs(job.program.binding)
        shapes = _shapes(outputs)
        if shapes not in self._judges:
            known = self._known(outputs)
            self._judges[shapes] = Judge.of_expected(known, self._tolerance)
        return self._judges[shapes].check(outputs).reason

    def _known(self, outputs: Outputs) -> dict[str, torch.Tensor]:
        if self._expected is None:
            return {name: output.clone() for name, output in outputs.items()}
        return match_results(self._expected, outputs)


def match_results(expected: Sequence[torch.Tensor], outputs: Outputs) -> dict[str, torch.Tensor]:
    """Results of a function by the outputs that have their shapes, in order."""
    left = dict(outputs)
    matched: dict[str, torch.Tensor] = {}
    for result in expected:
        name = next((n for n, x in left.items() if x.shape == result.shape), None)
        if name is not None:
            matched[name] = result.to(left.pop(name).dtype)
    if not matched:
        raise ValueError("the baseline function gives no tensor of the shape of any output")
    return matched


def _shapes(tensors: Outputs) -> Shapes:
    return tuple(sorted((name, tuple(x.shape)) for name, x in tensors.items()))


def _tolerance(job: PrepareJob) -> Tolerance | None:
    if job.atol is None and job.rtol is None:
        return None
    return Tolerance(job.atol or 0.0, job.rtol or 0.0)
