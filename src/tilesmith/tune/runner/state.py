"""What a runner knows between jobs: its workload, the judge, and the candidates found right."""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from tilesmith.backends.triton.build import use_cache_dir
from tilesmith.ir.ops.memory import Atomic, AtomicKind
from tilesmith.ir.traversal import walk_function
from tilesmith.lab.processes.channel import LastReply, describe_error
from tilesmith.lab.workload.binding import Binding
from tilesmith.lab.workload.loading import Workload
from tilesmith.tune.jobs import (
    CheckJob,
    CheckReply,
    ForgetJob,
    PrepareJob,
    PrepareReply,
    ReleaseJob,
    RunnerJob,
    TimeJob,
    TimeReply,
)
from tilesmith.tune.runner.build import cache_dir, triton_dir
from tilesmith.tune.runner.checking import Checked, Checker, is_device_lost, make_judge
from tilesmith.tune.runner.launching import Launch, LaunchPlace, TimedWork, time_works


@dataclass(frozen=True)
class _Right:
    """A candidate that may be timed."""

    launch: Launch
    binding: Binding
    rough_ms: float


class RunnerState:
    """Answers jobs one after the other. The first must be a PrepareJob."""

    def __init__(self) -> None:
        self._loaded: LoadedWorkload | None = None

    def handle(self, job: RunnerJob) -> Any:
        """The reply to a job; a LastReply if the device is lost."""
        if isinstance(job, ReleaseJob):
            self._release()
            return None
        if isinstance(job, PrepareJob):
            self._loaded = None
            self._loaded, reply = prepare(job)
            return reply
        if self._loaded is None:
            raise ValueError(f"{type(job).__name__} before a workload was prepared")
        return self._loaded.handle(job)

    def _release(self) -> None:
        self._loaded = None
        gc.collect()
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()


class LoadedWorkload:
    """One workload with its candidates."""

    def __init__(self, workload: Workload, place: LaunchPlace, checker: Checker) -> None:
        self._workload = workload
        self._place = place
        self._checker = checker
        self._right: dict[str, _Right] = {}

    def handle(self, job: RunnerJob) -> Any:
        """The reply to a job about a candidate."""
        if isinstance(job, CheckJob):
            return self._check(job)
        if isinstance(job, TimeJob):
            return self._time(job)
        if isinstance(job, ForgetJob):
            return self._forget(job)
        raise TypeError(f"not a job of a runner: {type(job).__name__}")

    def _check(self, job: CheckJob) -> CheckReply | LastReply:
        program = job.program
        checked: Checked = self._checker.check(job)
        if checked.launch is not None:
            self._right[program.key] = _Right(
                checked.launch, program.binding, checked.reply.first_ms
            )
        return LastReply(checked.reply) if checked.is_device_lost else checked.reply

    def _time(self, job: TimeJob) -> TimeReply | LastReply:
        unknown = [key for key in job.keys if key not in self._right]
        if unknown or not job.keys:
            raise KeyError(f"not checked in this process: {', '.join(unknown) or 'no key at all'}")
        works = [self._timed(self._right[key]) for key in job.keys]
        try:
            return time_works(works, job, self._place)
        except Exception as error:
            if is_device_lost(self._place):
                return LastReply(describe_error(error))
            raise

    def _timed(self, right: _Right) -> TimedWork:
        must_restore = self._workload.must_restore(right.binding)
        restore = partial(self._workload.restore_read, right.binding) if must_restore else None
        return TimedWork(right.launch.run, restore, right.rough_ms)

    def _forget(self, job: ForgetJob) -> None:
        dropped = [self._right.pop(key) for key in job.keys if key in self._right]
        in_use = {right.binding.extra_storages for right in self._right.values()}
        for right in dropped:
            if right.binding.extra_storages not in in_use:
                self._workload.forget(right.binding)


def prepare(job: PrepareJob) -> tuple[LoadedWorkload, PrepareReply]:
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
    may_differ = _is_order_free(job) and not job.has_deterministic_results
    checker = Checker(workload, place, find_fault, may_differ=may_differ)
    reference_s = time.perf_counter() - loaded
    reply = replace(reply, loading_s=loaded - started, reference_s=reference_s)
    return LoadedWorkload(workload, place, checker), reply


def _is_order_free(job: PrepareJob) -> bool:
    """Whether the order in which programs add floats decides the last bits."""
    if job.is_float_order_free or job.reference is None:
        return job.is_float_order_free
    ops = walk_function(job.reference.function)
    return any(_depends_on_order(op) for op in ops if isinstance(op, Atomic))


def _depends_on_order(op: Atomic) -> bool:
    is_lock = op.kind in (AtomicKind.XCHG.value, AtomicKind.CAS.value)
    return is_lock or (op.kind == AtomicKind.ADD.value and op.tensor.tensor.dtype.is_float)
