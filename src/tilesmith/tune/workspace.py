"""What one search works with: its processes, and workloads captured in files that they load.

Both go with a stack: processes end, or are parked for the next search.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

from tilesmith.artifacts import Artifact
from tilesmith.frontend.containers import tensors_in
from tilesmith.frontend.tracing.host_run import copy_tensors
from tilesmith.ir.ops.memory import Atomic
from tilesmith.ir.traversal import walk_function
from tilesmith.jit.bound_kernel import BoundKernel
from tilesmith.jit.tuner import MultiRequest
from tilesmith.lab.workload.binding import Binding, TensorRef
from tilesmith.lab.workload.capture import Captured, capture, save_expected, workload_folder
from tilesmith.lab.workload.loading import time_function
from tilesmith.numerics.reference_setup import choose_num_programs, reference_sizes
from tilesmith.schedule.config import Config
from tilesmith.store.outcome import Candidate, Verdict
from tilesmith.tune.context import (
    Case,
    Deadline,
    EmittedCandidate,
    RunnerLostError,
    TrialFailedError,
)
from tilesmith.tune.jobs import PrepareJob, PrepareReply, Program, ReferenceJob
from tilesmith.tune.options import TuneOptions
from tilesmith.tune.places import LocalPlace, Place
from tilesmith.tune.result import Timeline
from tilesmith.tune.workers import AGGREGATIONS, JointRunner, PoolBuilder, RunnerClient

REFERENCE_SHARE = 0.3
"""Of the budget, at most, for the interpreter."""
MAX_REFERENCE_S = 30.0
LOADING_S = 30.0
"""For putting a workload onto its device, besides the time for the reference."""
WEIGHING_REPEATS = 10
"""Samples of the default config that the times of others are divided by."""


class Workspace:
    """Everything that runs outside the search loop, for one search; processes start at once."""

    def __init__(
        self,
        cases: Sequence[Case],
        options: TuneOptions,
        goal: MultiRequest,
        deadline: Deadline,
        stack: ExitStack,
        place: Place | None = None,
    ) -> None:
        self.goal, self.deadline, place = goal, deadline, place or LocalPlace()
        self._cases, self._options, self._stack = cases, options, stack
        self._device = place.device
        self._numbers = count(1)
        self._timeline = Timeline()
        self._runners: list[RunnerClient] = []
        # Runners first: they take longest to come up.
        for case in cases:
            device = place.device or str(case.bound.device)
            self._runners.append(RunnerClient(options, deadline, device, place))
            stack.callback(self._runners[-1].close)
        bound = cases[0].bound
        needs = bound.definition.backends.of(bound.target).tuning
        self.overlaps = needs.builds_beside_runs
        self.builder = PoolBuilder(options, needs, place)
        stack.callback(self.builder.close)
        self.runner = JointRunner(self._runners, AGGREGATIONS[goal.aggregation])
        self._binders: list[CandidateBinder] = []
        self._jobs: list[PrepareJob] = []

    def capture(self) -> None:
        """Write the workloads to files, and let runners begin to load them; CaptureError."""
        for case, runner in zip(self._cases, self._runners):
            captured = capture(*case, case.bound.config_spec.default_config())
            folder = self._stack.enter_context(workload_folder(captured.memory.nbytes))
            self._binders.append(CandidateBinder(*case, captured, folder))
            self._jobs.append(self._job(case, self._binders[-1]))
            runner.announce(self._jobs[-1])
            self._timeline.note("saved", self.deadline.elapsed_s)

    @property
    def timeline(self) -> Timeline:
        """What happened when, so far."""
        built_at = self.builder.first_done_at
        if built_at is not None:
            self._timeline.note("build", self.deadline.elapsed_at(built_at))
        return self._timeline

    @property
    def disturbed(self) -> float:
        """The share of measurements during which others had the cores."""
        some, among = self.runner.disturbances
        return some / max(1, among)

    def emit(self, candidate: Candidate) -> EmittedCandidate:
        """The programs of a candidate, one for each case."""
        key = f"c{next(self._numbers)}"
        config = candidate.config
        programs = tuple(binder.program(key, config) for binder in self._binders)
        usual = zip(self._binders, self._jobs)
        references = tuple(binder.own_reference(config, job.reference) for binder, job in usual)
        return EmittedCandidate(key, candidate, programs, references)

    def prepare(self) -> PrepareReply:
        """Load all workloads; the reply for the first, or the first that is worse off."""
        replies = [self._prepare(*pair) for pair in zip(self._runners, self._jobs)]
        if self.goal.relative_to is not None:
            self.runner.weights = self._weigh()
        timeline, deadline = self._timeline, self.deadline
        timeline.note("runner", deadline.elapsed_at(self._runners[0].ready_at))
        timeline.note("loading", replies[0].loading_s)
        timeline.note("reference", replies[0].reference_s)
        timeline.note("prepared", deadline.elapsed_s)
        return next((reply for reply in replies if reply.reason), replies[0])

    def _weigh(self) -> list[float]:
        """The times that those of candidates are divided by."""
        cases, baseline = self._cases, self._options.settings.autotune_baseline_fn
        if self.goal.relative_to == "baseline" and baseline is not None:
            return [time_function(baseline, case.args, str(case.bound.device)) for case in cases]
        emitted = self.emit(Candidate(cases[0].bound.config_spec.default_config(), "default"))
        timeout_s = self.deadline.cap(self._options.settings.autotune_benchmark_timeout)
        reply = self.runner.check(emitted, timeout_s)
        if reply.verdict is not Verdict.OK:
            raise RunnerLostError(f"the default config, to compare with, fails: {reply.reason}")
        return self.runner.time_apart(emitted.key, WEIGHING_REPEATS, timeout_s)

    def _prepare(self, runner: RunnerClient, job: PrepareJob) -> PrepareReply:
        try:
            return runner.prepare(job, self.deadline.cap(job.time_limit_s + LOADING_S))
        except TrialFailedError as error:
            if self.deadline.is_past:
                raise
            failed = error
        # The reference took the runner down: candidates are compared with each other.
        try:
            reply = runner.prepare(replace(job, reference=None), self.deadline.cap(LOADING_S))
        except TrialFailedError as again:
            raise RunnerLostError(f"the workload cannot be prepared: {again.reason}") from again
        return replace(reply, reason=reply.reason or f"the reference failed: {failed.reason}")

    def _job(self, case: Case, candidates: CandidateBinder) -> PrepareJob:
        options, bound, settings = self._options, case.bound, self._options.settings
        workload = candidates.basis.save(candidates.folder)
        # A check of the user's own replaces ours.
        has_own_check = settings.autotune_baseline_accuracy_check_fn is not None
        is_checked = settings.autotune_accuracy_check and not has_own_check
        reference = None
        expected = None
        if is_checked and settings.autotune_baseline_fn is not None:
            results = tensors_in(settings.autotune_baseline_fn(*copy_tensors(case.args)))
            expected = save_expected(list(results), candidates.folder)
        elif is_checked:
            reference = candidates.reference(bound.config_spec.default_config(), seed=options.seed)
        atomics = (op for op in walk_function(bound.function) if isinstance(op, Atomic))
        return PrepareJob(
            workload,
            self._device or str(bound.device),
            reference,
            expected,
            is_checked=is_checked,
            atol=settings.autotune_baseline_atol,
            rtol=settings.autotune_baseline_rtol,
            is_float_order_free=any(
                op.kind == "add" and op.value.tile.dtype.is_float for op in atomics
            ),
            has_deterministic_results=settings.deterministic,
            time_limit_s=min(MAX_REFERENCE_S, REFERENCE_SHARE * options.budget_s),
            num_threads=bound.settings.num_threads,
        )


def _sizes(job: ReferenceJob) -> list[tuple[str, tuple[int, ...]]]:
    arguments = job.binding.arguments
    return [(name, value.size) for name, value in arguments if isinstance(value, TensorRef)]


@dataclass(frozen=True)
class CandidateBinder:
    """Binds artifacts of one kernel call, whose first capture is saved in ``folder``."""

    bound: BoundKernel
    args: tuple[Any, ...]
    basis: Captured
    folder: Path

    def program(self, key: str, config: Config) -> Program:
        """The artifact of a Config with its launch arguments."""
        # Programs travel to child processes, which read no loop nests: print none for them.
        artifact = replace(self.bound.to_artifact(config), loops=None)
        backend = self.bound.definition.backends.named(artifact.backend)
        return Program(key, artifact, self.bind(config, artifact), backend.launch)

    def bind(self, config: Config, artifact: Artifact) -> Binding:
        """The launch arguments of the artifact of a Config."""
        captured, extra = self._capture(config)
        return captured.bind_artifact(artifact, extra)

    def reference(self, config: Config, *, seed: int = 0) -> ReferenceJob:
        """How to find out what the kernel gives under a Config (and, as a rule, under all)."""
        captured, extra = self._capture(config)
        blocks = config.get("block_sizes", [])
        may_grow = not captured.depends_on_config
        sizes = reference_sizes(captured.function, blocks, may_grow=may_grow)
        is_on_host = captured.launch.device.type == "cpu"
        return ReferenceJob(
            captured.function,
            tuple(sorted(sizes.items())),
            captured.bind_function(extra),
            choose_num_programs(captured.function, sizes, is_on_host=is_on_host),
            seed,
        )

    def own_reference(self, config: Config, usual: ReferenceJob | None) -> ReferenceJob | None:
        """For a Config with which host code makes tensors of other sizes than usual."""
        if usual is None or not self.basis.depends_on_config:
            return None
        own = self.reference(config, seed=usual.seed)
        if _sizes(own) != _sizes(usual):
            return own
        self.release(own.binding)
        return None

    def release(self, binding: Binding) -> None:
        """Remove what was saved for this binding alone."""
        if binding.extra_storages is not None:
            binding.extra_storages.unlink(missing_ok=True)

    def _capture(self, config: Config) -> tuple[Captured, Path | None]:
        if not self.basis.depends_on_config:
            return self.basis, None
        captured = capture(self.bound, self.args, config, self.basis)
        return captured, captured.save(self.folder)
