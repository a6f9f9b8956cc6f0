"""What a runner knows between jobs: its workload, the judge, and the candidates found right.

A candidate runs twice from the workload's initial state. It is judged by the kernel's own fp64
reference if there is one, else by the results of the user's function, else by those of the first
candidate that runs. Nothing is timed that was not found right first. After a fault of the device
its context is lost: the process must not be used again.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch

from tilesmith.backends.triton.build import use_cache_dir
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.memory import Atomic, AtomicKind
from tilesmith.ir.traversal import walk_function
from tilesmith.lab.failures import classify, one_line
from tilesmith.lab.processes.channel import LastReply, describe_error
from tilesmith.lab.workload.binding import Binding
from tilesmith.lab.workload.loading import Snapshot, Workload, load_expected
from tilesmith.numerics.judge import Judge
from tilesmith.numerics.oracle import NoReferenceError, OracleOptions, Reference, work_out_reference
from tilesmith.numerics.tolerance import Tolerance
from tilesmith.store.outcome import Verdict
from tilesmith.tune import jobs
from tilesmith.tune.runner.build import cache_dir, triton_dir
from tilesmith.tune.runner.launching import Launch, LaunchPlace, TimedWork, make_launch, time_works

FindFault = Callable[[jobs.CheckJob], str]
"""What is wrong with the results in the workload's memory, in one line; "" where they are right."""
OWN_TIME_LIMIT_S = 5.0
"""For the reference of a single candidate."""
Outputs = Mapping[str, torch.Tensor]
Shapes = tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True)
class Checked:
    """The reply to a check, and the launch if it may be timed."""

    reply: jobs.CheckReply
    launch: Launch | None = None
    is_device_lost: bool = False


@dataclass(frozen=True)
class Checker:
    """Checks candidates against one judge."""

    workload: Workload
    place: LaunchPlace
    find_fault: FindFault
    may_differ: bool = False
    """Whether bits may change from run to run, where the order of atomics decides them."""

    def check(self, job: jobs.CheckJob, launch: Launch | None = None) -> Checked:
        """Run a candidate, by a launch that was used before or a new one; errors are verdicts."""
        try:
            return self._run_and_judge(job, launch)
        except Exception as error:
            verdict, reason = classify(error, Verdict.RUN_ERROR)
            if is_device_lost(self.place):
                reply = jobs.CheckReply(Verdict.CRASHED, f"the device is lost: {one_line(error)}")
                return Checked(reply, is_device_lost=True)
            if verdict is Verdict.OUT_OF_MEMORY and self.place.is_asynchronous:
                torch.cuda.empty_cache()
            return Checked(jobs.CheckReply(verdict, reason))

    def _run_and_judge(self, job: jobs.CheckJob, launch: Launch | None) -> Checked:
        binding = job.program.binding
        launch = launch or make_launch(job.program, self.workload.arguments(binding), self.place)
        self._run(launch, job)
        verdict, problem, first_ms = Verdict.WRONG, self.find_fault(job), 0.0
        if not problem:
            first = self.workload.snapshot(binding)
            first_ms = self._run(launch, job)
            verdict, problem = self._judge_repeat(job, first)
        if problem:
            return Checked(jobs.CheckReply(verdict, problem, resources=launch.resources()))
        return Checked(jobs.CheckReply(Verdict.OK, "", first_ms, launch.resources()), launch)

    def _run(self, launch: Launch, job: jobs.CheckJob) -> float:
        """One run from the initial state; its time in milliseconds."""
        self.workload.restore(job.program.binding)
        self.place.synchronize()
        start = time.perf_counter()
        launch.run()
        self.place.synchronize()
        return (time.perf_counter() - start) * 1e3

    def _judge_repeat(self, job: jobs.CheckJob, first: Snapshot) -> tuple[Verdict, str]:
        """The second run must give the bits of the first, or at least be right where it may not."""
        binding = job.program.binding
        second = self.workload.snapshot(binding)
        if first.is_same(second):
            return Verdict.OK, ""
        if self.may_differ:
            return Verdict.WRONG, self.find_fault(job)
        difference = self.workload.describe_difference(binding, first, second)
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


def make_judge(job: jobs.PrepareJob, workload: Workload) -> tuple[FindFault, jobs.PrepareReply]:
    """What finds faults of candidates on a workload, and a description of it."""
    if not job.is_checked:
        return lambda _: "", jobs.PrepareReply("nothing", "results are not to be checked")
    tolerance = None
    if job.atol is not None or job.rtol is not None:
        tolerance = Tolerance(job.atol or 0.0, job.rtol or 0.0)
    if job.expected is not None:
        expected = load_expected(job.expected, workload.device)
        by_expected = JudgeByResults(workload, tolerance, expected)
        return by_expected.find_fault, jobs.PrepareReply("the baseline function")
    by_first = JudgeByResults(workload, tolerance)
    if job.reference is None:
        return by_first.find_fault, jobs.PrepareReply("first candidate", "there is no reference")
    try:
        by_reference = JudgeByReference(job.reference, by_first, job.time_limit_s)
    except NoReferenceError as error:
        return by_first.find_fault, jobs.PrepareReply("first candidate", str(error))
    reference = by_reference.reference
    return by_reference.find_fault, jobs.PrepareReply(str(reference), reference.reason)


class JudgeByReference:
    """Judges by the kernel's reference; a candidate may bring one of its own.

    NoReferenceError if it cannot be worked out. ``otherwise`` judges what it does not cover.
    """

    def __init__(
        self, job: jobs.ReferenceJob, otherwise: JudgeByResults, time_limit_s: float
    ) -> None:
        self._job = job
        self._otherwise = otherwise
        self._workload = otherwise.workload
        self.reference, self._judge = self._work_out(job, time_limit_s)
        self._shapes = _shapes({name: x.native for name, x in self.reference.tensors.items()})

    def _work_out(self, job: jobs.ReferenceJob, time_limit_s: float) -> tuple[Reference, Judge]:
        options = OracleOptions(job.max_programs, job.seed, time_limit_s)
        # From the state that candidates start from: what they leave alone must look the same.
        self._workload.restore(job.binding)
        arguments = self._workload.arguments(job.binding)
        try:
            reference = work_out_reference(job.function, arguments, dict(job.sizes), options)
            return reference, Judge(reference, self._otherwise.tolerance)
        except NoReferenceError:
            raise
        except Exception as error:
            raise NoReferenceError(f"the reference failed: {one_line(error)}") from error

    def find_fault(self, job: jobs.CheckJob) -> str:
        """What is wrong with the results of a candidate."""
        outputs = self._outputs(job.program, job.reference or self._job)
        if job.reference is not None:
            outputs = {name: x.clone() for name, x in outputs.items()}
            return self._work_out(job.reference, OWN_TIME_LIMIT_S)[1].check(outputs).reason
        judged = {name: outputs[name] for name, _ in self._shapes if name in outputs}
        if _shapes(judged) != self._shapes:
            # Host code made other tensors for this Config than for that of the reference.
            return self._otherwise.find_fault(job)
        return self._judge.check(outputs).reason

    def _outputs(self, program: jobs.Program, job: jobs.ReferenceJob) -> Outputs:
        """What a candidate has written, by the names of the reference."""
        if program.binding.extra_storages is None:
            return self._workload.outputs(job.binding)
        written = self._workload.outputs(program.binding)
        parameters = program.artifact.parameters
        by_source = {p.source: written[p.name] for p in parameters if p.name in written}
        named = {p.value.name: p.source for p in job.function.parameters}
        return {name: by_source[source] for name, source in named.items() if source in by_source}


@dataclass
class JudgeByResults:
    """Judges by results from elsewhere; without any, by those of the first candidate."""

    workload: Workload
    tolerance: Tolerance | None
    expected: Sequence[torch.Tensor] | None = None
    _judges: dict[Shapes, Judge] = field(default_factory=dict[Shapes, Judge], init=False)

    def find_fault(self, job: jobs.CheckJob) -> str:
        """What is wrong with the results of a candidate; nothing, if it is the first."""
        outputs = self.workload.outputs(job.program.binding)
        shapes = _shapes(outputs)
        if shapes not in self._judges:
            known = {name: output.clone() for name, output in outputs.items()}
            if self.expected is not None:
                known = match_results(self.expected, outputs)
            self._judges[shapes] = Judge.of_expected(known, self.tolerance)
        return self._judges[shapes].check(outputs).reason


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


class RunnerState:
    """Answers jobs one after the other. The first must be a PrepareJob."""

    def __init__(self) -> None:
        self._checker: Checker | None = None
        self._right: dict[str, tuple[TimedWork, Binding, Launch]] = {}
        """Candidates of the workload that may be timed, by key."""

    def handle(self, job: jobs.RunnerJob) -> Any:
        """The reply to a job; a LastReply if the device is lost."""
        if isinstance(job, jobs.PrepareJob):
            self._drop()
            self._checker, reply = prepare(job)
            return reply
        if isinstance(job, jobs.ReleaseJob):
            self._drop()
            gc.collect()
            if torch.cuda.is_initialized():
                torch.cuda.empty_cache()
            return None
        if self._checker is None:
            raise ValueError(f"{type(job).__name__} before a workload was prepared")
        if isinstance(job, jobs.CheckJob):
            return self._check(job, self._checker)
        if isinstance(job, jobs.TimeJob):
            return self._time(job, self._checker.place)
        if isinstance(job, jobs.ForgetJob):
            return self._forget(job, self._checker.workload)
        raise TypeError(f"not a job of a runner: {type(job).__name__}")

    def _drop(self) -> None:
        self._checker = None
        self._right.clear()

    def _check(self, job: jobs.CheckJob, checker: Checker) -> jobs.CheckReply | LastReply:
        binding, workload = job.program.binding, checker.workload
        # One that was timed is judged as it was timed: what its launch keeps may have changed.
        known = self._right.pop(job.program.key, None)
        checked = checker.check(job, known and known[2])
        if checked.launch is not None:
            must_restore = workload.must_restore(binding)
            restore = partial(workload.restore_read, binding) if must_restore else None
            work = TimedWork(checked.launch.run, restore, checked.reply.first_ms)
            self._right[job.program.key] = (work, binding, checked.launch)
        return LastReply(checked.reply) if checked.is_device_lost else checked.reply

    def _time(self, job: jobs.TimeJob, place: LaunchPlace) -> jobs.TimeReply | LastReply:
        unknown = [key for key in job.keys if key not in self._right]
        if unknown or not job.keys:
            raise KeyError(f"not checked in this process: {', '.join(unknown) or 'no key at all'}")
        works = [self._right[key][0] for key in job.keys]
        try:
            return time_works(works, job, place)
        except Exception as error:
            if is_device_lost(place):
                return LastReply(describe_error(error))
            raise

    def _forget(self, job: jobs.ForgetJob, workload: Workload) -> None:
        dropped = [self._right.pop(key)[1] for key in job.keys if key in self._right]
        in_use = {binding.extra_storages for _, binding, _ in self._right.values()}
        for binding in dropped:
            if binding.extra_storages not in in_use:
                workload.forget(binding)


def prepare(job: jobs.PrepareJob) -> tuple[Checker, jobs.PrepareReply]:
    """Load a workload and find out what is right."""
    place = LaunchPlace(torch.device(job.device), cache_dir(), job.num_threads)
    if place.is_asynchronous:
        torch.cuda.set_device(place.device)
        use_cache_dir(triton_dir(place.cache_dir))
    started = time.perf_counter()
    workload = Workload.load(job.workload, place.device)
    place.synchronize()
    loaded = time.perf_counter()
    find_fault, reply = make_judge(job, workload)
    if is_device_lost(place):
        # Without an answer: the parent then asks a new process, for less.
        raise SystemExit(f"the device is lost: {reply.reason}")
    may_differ = job.is_float_order_free
    if job.reference is not None:
        may_differ |= any(map(_depends_on_order, walk_function(job.reference.function)))
    may_differ &= not job.has_deterministic_results
    checker = Checker(workload, place, find_fault, may_differ=may_differ)
    reference_s = time.perf_counter() - loaded
    reply = replace(reply, loading_s=loaded - started, reference_s=reference_s)
    return checker, reply


def _depends_on_order(op: Operation) -> bool:
    """Whether the order of programs decides the last bits of what an op leaves in memory."""
    if not isinstance(op, Atomic):
        return False
    is_lock = op.kind in (AtomicKind.XCHG.value, AtomicKind.CAS.value)
    return is_lock or (op.kind == AtomicKind.ADD.value and op.tensor.tensor.dtype.is_float)
