"""What one search works with: workloads captured in files, and the processes that load them.

Both go with the workers' stack.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

from tilesmith.artifacts import Artifact
from tilesmith.frontend.containers import tensors_in
from tilesmith.ir.ops.memory import Atomic
from tilesmith.ir.traversal import walk_function
from tilesmith.jit.bound_kernel import BoundKernel
from tilesmith.jit.tuner import MultiRequest
from tilesmith.lab.workload.binding import Binding, TensorRef
from tilesmith.lab.workload.capture import Captured, capture, save_expected, workload_folder
from tilesmith.lab.workload.results import copy_arguments, time_function
from tilesmith.numerics.reference_setup import choose_num_programs, reference_sizes
from tilesmith.schedule.config import Config
from tilesmith.store.outcome import Candidate, Verdict
from tilesmith.tune.case import Case
from tilesmith.tune.context import EmittedCandidate, RunnerLostError, TrialFailedError
from tilesmith.tune.jobs import PrepareJob, PrepareReply, Program, ReferenceJob
from tilesmith.tune.limits import Deadline
from tilesmith.tune.options import TuneOptions
from tilesmith.tune.result import Timeline
from tilesmith.tune.workers import AGGREGATIONS, JointRunner, RunnerClient, Workers

REFERENCE_SHARE = 0.3
"""Of the budget, at most, for the interpreter."""
MAX_REFERENCE_S = 30.0
LOADING_S = 30.0
"""For putting a workload onto its device, besides the time for the reference."""
WEIGHING_REPEATS = 10
"""Samples of the default config that the times of others are divided by."""


@dataclass(frozen=True)
class _CaseSetup:
    """What belongs to one case."""

    case: Case
    runner: RunnerClient
    candidates: CandidateBinder
    job: PrepareJob

    def program(self, key: str, config: Config) -> Program:
        # Programs travel to child processes, which read no loop nests: print none for them.
        artifact = replace(self.case.bound.to_artifact(config), loops=None)
        backend = self.case.bound.definition.backends.named(artifact.backend)
        return Program(key, artifact, self.candidates.bind(config, artifact), backend.launch)

    def own_reference(self, config: Config) -> ReferenceJob | None:
        """For a Config with which host code makes tensors of other sizes than usual."""
        usual = self.job.reference
        if usual is None or not self.candidates.basis.depends_on_config:
            return None
        own = self.candidates.reference(config, seed=usual.seed)
        if _sizes(own) != _sizes(usual):
            return own
        self.candidates.release(own.binding)
        return None


class Workspace:
    """Everything that runs outside the search loop, for one search."""

    def __init__(
        self,
        cases: Sequence[Case],
        options: TuneOptions,
        deadline: Deadline,
        goal: MultiRequest,
        workers: Workers,
    ) -> None:
        self._options = options
        self._deadline = deadline
        self._goal = goal
        self._stack = workers.stack
        self._numbers = count(1)
        self._timeline = Timeline()
        self.overlaps = workers.needs.builds_beside_runs
        self.builder = workers.builder
        self.runner = JointRunner(workers.runners, AGGREGATIONS[goal.aggregation])
        self._setups = [self._open(*pair) for pair in zip(cases, workers.runners)]

    @property
    def timeline(self) -> Timeline:
        """What happened when, so far."""
        built_at = self.builder.first_done_at
        if built_at is not None:
            self._timeline.note("build", self._deadline.elapsed_at(built_at))
        return self._timeline

    @property
    def disturbed(self) -> float:
        """The share of measurements during which others had the cores."""
        found = [one for setup in self._setups for one in setup.runner.disturbances]
        return sum(found) / len(found) if found else 0.0

    def emit(self, candidate: Candidate) -> EmittedCandidate:
        """The programs of a candidate, one for each case."""
        key = f"c{next(self._numbers)}"
        config = candidate.config
        programs = tuple(setup.program(key, config) for setup in self._setups)
        references = tuple(setup.own_reference(config) for setup in self._setups)
        return EmittedCandidate(key, candidate, programs, references)

    def prepare(self) -> PrepareReply:
        """Load all workloads; the reply for the first, or the first that is worse off."""
        replies = [self._prepare(setup) for setup in self._setups]
        if self._goal.relative_to is not None:
            self.runner.weights = self._weigh()
        timeline, deadline = self._timeline, self._deadline
        timeline.note("runner", deadline.elapsed_at(self._setups[0].runner.ready_at))
        timeline.note("loading", replies[0].loading_s)
        timeline.note("reference", replies[0].reference_s)
        timeline.note("prepared", deadline.elapsed_s)
        return next((reply for reply in replies if reply.reason), replies[0])

    def _weigh(self) -> list[float]:
        """The times that those of candidates are divided by."""
        baseline = self._options.baseline_fn
        cases = [setup.case for setup in self._setups]
        if self._goal.relative_to == "baseline" and baseline is not None:
            return [time_function(baseline, case.args, str(case.bound.device)) for case in cases]
        emitted = self.emit(Candidate(cases[0].bound.config_spec.default_config(), "default"))
        timeout_s = self._deadline.cap(self._options.run_timeout_s)
        reply = self.runner.check(emitted, timeout_s)
        if reply.verdict is not Verdict.OK:
            raise RunnerLostError(f"the default config, to compare with, fails: {reply.reason}")
        return self.runner.time_apart(emitted.key, WEIGHING_REPEATS, timeout_s)

    def _prepare(self, setup: _CaseSetup) -> PrepareReply:
        limit_s = setup.job.time_limit_s + LOADING_S
        try:
            return setup.runner.prepare(setup.job, self._deadline.cap(limit_s))
        except TrialFailedError as error:
            if self._deadline.is_past:
                raise
            failed = error
        # The reference took the runner down: candidates are compared with each other.
        job = replace(setup.job, reference=None)
        try:
            reply = setup.runner.prepare(job, self._deadline.cap(LOADING_S))
        except TrialFailedError as again:
            raise RunnerLostError(f"the workload cannot be prepared: {again.reason}") from again
        return replace(reply, reason=reply.reason or f"the reference failed: {failed.reason}")

    def _open(self, case: Case, runner: RunnerClient) -> _CaseSetup:
        basis_config = case.bound.config_spec.default_config()
        captured = capture(case.bound, case.args, basis_config)
        folder = self._stack.enter_context(workload_folder(captured.memory.nbytes))
        candidates = CandidateBinder(case.bound, case.args, captured, folder)
        job = self._job(case, candidates)
        runner.announce(job)
        self._timeline.note("saved", self._deadline.elapsed_s)
        return _CaseSetup(case, runner, candidates, job)

    def _job(self, case: Case, candidates: CandidateBinder) -> PrepareJob:
        options, bound = self._options, case.bound
        workload = candidates.basis.save(candidates.folder)
        # A check of the user's own replaces ours.
        is_checked = options.is_checked and options.accuracy_check_fn is None
        reference = None
        expected = None
        if is_checked and options.baseline_fn is not None:
            results = tensors_in(options.baseline_fn(*copy_arguments(case.args)))
            expected = save_expected(list(results), candidates.folder)
        elif is_checked:
            reference = candidates.reference(bound.config_spec.default_config(), seed=options.seed)
        atomics = (op for op in walk_function(bound.function) if isinstance(op, Atomic))
        return PrepareJob(
            workload,
            str(bound.device),
            reference,
            expected,
            is_checked=is_checked,
            atol=options.atol,
            rtol=options.rtol,
            is_float_order_free=any(
                op.kind == "add" and op.value.tile.dtype.is_float for op in atomics
            ),
            has_deterministic_results=options.is_deterministic,
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

    def release(self, binding: Binding) -> None:
        """Remove what was saved for this binding alone."""
        if binding.extra_storages is not None:
            binding.extra_storages.unlink(missing_ok=True)

    def _capture(self, config: Config) -> tuple[Captured, Path | None]:
        if not self.basis.depends_on_config:
            return self.basis, None
        captured = capture(self.bound, self.args, config, self.basis)
        return captured, captured.save(self.folder)
