"""What one search works with: workloads captured in files, and the processes that load them.

The files are gone when the workspace is left; the processes belong to Workers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

from typing_extensions import Self

from tilesmith.artifacts import Artifact
from tilesmith.backends.table import BACKENDS
from tilesmith.frontend.containers import tensors_in
from tilesmith.ir.function import Function
from tilesmith.ir.ops.memory import Atomic
from tilesmith.ir.traversal import walk_function
from tilesmith.jit.bound_kernel import BoundKernel
from tilesmith.lab.workload.binding import Binding, TensorRef
from tilesmith.lab.workload.capture import Captured, capture
from tilesmith.lab.workload.results import copy_arguments, time_function
from tilesmith.lab.workload.saving import save, save_expected, workload_folder
from tilesmith.numerics.reference_setup import choose_num_programs, reference_sizes
from tilesmith.schedule.config import Config
from tilesmith.store.outcome import Candidate, Verdict
from tilesmith.tune.case import Case
from tilesmith.tune.context import EmittedCandidate, RunnerLostError, TrialFailedError
from tilesmith.tune.jobs import PrepareJob, PrepareReply, Program, ReferenceJob
from tilesmith.tune.limits import Deadline
from tilesmith.tune.options import TuneOptions
from tilesmith.tune.result import Timeline
from tilesmith.tune.runner_clients import AGGREGATIONS, JointRunner, RunnerClient
from tilesmith.tune.workers import Workers

REFERENCE_SHARE = 0.3
"""Of the budget, at most, for the interpreter."""
MAX_REFERENCE_S = 30.0
LOADING_S = 30.0
"""For putting a workload onto its device, besides the time for the reference."""
WEIGHING_REPEATS = 10
"""Samples of the default config that the times of others are divided by."""


@dataclass(frozen=True)
class Goal:
    """How the times of several cases become one number."""

    aggregation: str = "geomean"
    relative_to: str | None = None
    """What times are divided by, case by case: None, "default" or "baseline"."""

    def text(self, num_cases: int) -> str:
        """What a time stands for, where it is not simply one.

        Example:
            >>> Goal().text(1), Goal("max").text(2)
            ('', 'the largest of 2 sets of arguments')
        """
        if num_cases == 1 and self.relative_to is None:
            return ""
        kind = "the largest" if self.aggregation == "max" else "the geometric mean"
        ratio = f", over the {self.relative_to}'s: 1 ms is as fast" if self.relative_to else ""
        return f"{kind} of {num_cases} sets of arguments{ratio}"


SINGLE = Goal()


@dataclass(frozen=True)
class _CaseSetup:
    """What belongs to one case."""

    case: Case
    runner: RunnerClient
    candidates: CandidateBinder
    job: PrepareJob

    def program(self, key: str, config: Config) -> Program:
        """What a Config becomes on this case."""
        # Programs travel to child processes, which read no loop nests: print none for them.
        artifact = replace(self.case.bound.to_artifact(config), loops=None)
        return Program(key, artifact, self.candidates.bind(config, artifact))

    def own_reference(self, config: Config) -> ReferenceJob | None:
        """For a Config with which host code makes tensors of other sizes than usual."""
        usual = self.job.reference
        if usual is None or not self.candidates.depends_on_config:
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
        goal: Goal,
        workers: Workers,
    ) -> None:
        self._options = options
        self._deadline = deadline
        self._goal = goal
        self._stack = ExitStack()
        self._numbers = count(1)
        self._setups: list[_CaseSetup] = []
        self._timeline = Timeline()
        self.overlaps = BACKENDS.of(cases[0].bound.target).tuning.builds_beside_runs
        self.builder = workers.builder
        self.runner = JointRunner(workers.runners, AGGREGATIONS[goal.aggregation])
        try:
            self._setups = [self._open(*pair) for pair in zip(cases, workers.runners)]
        except BaseException:
            self._stack.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

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
        self._note_preparation(replies[0])
        return next((reply for reply in replies if reply.reason), replies[0])

    def _note_preparation(self, reply: PrepareReply) -> None:
        timeline, deadline = self._timeline, self._deadline
        timeline.note("runner", deadline.elapsed_at(self._setups[0].runner.ready_at))
        timeline.note("loading", reply.loading_s)
        timeline.note("reference", reply.reference_s)
        timeline.note("prepared", deadline.elapsed_s)

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
        except TrialFailedError as failed:
            if self._deadline.is_past:
                raise
            return self._prepare_unchecked(setup, failed)

    def _prepare_unchecked(self, setup: _CaseSetup, failed: TrialFailedError) -> PrepareReply:
        """After the reference took the runner down: candidates are compared with each other."""
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
        job = self._job(case, candidates, save(captured, folder), folder)
        runner.announce(job)
        self._timeline.note("saved", self._deadline.elapsed_s)
        return _CaseSetup(case, runner, candidates, job)

    def _job(
        self, case: Case, candidates: CandidateBinder, workload: Path, folder: Path
    ) -> PrepareJob:
        options, bound = self._options, case.bound
        # A check of the user's own replaces ours.
        is_checked = options.is_checked and options.accuracy_check_fn is None
        reference = None
        expected = None
        if is_checked and options.baseline_fn is not None:
            expected = save_baseline(options.baseline_fn, case.args, folder)
        elif is_checked:
            reference = candidates.reference(bound.config_spec.default_config(), seed=options.seed)
        return PrepareJob(
            workload,
            str(bound.device),
            reference,
            expected,
            is_checked=is_checked,
            atol=options.atol,
            rtol=options.rtol,
            is_float_order_free=_adds_floats_atomically(bound.function),
            has_deterministic_results=options.is_deterministic,
            time_limit_s=min(MAX_REFERENCE_S, REFERENCE_SHARE * options.budget_s),
            num_threads=bound.settings.num_threads,
        )


def _adds_floats_atomically(function: Function) -> bool:
    """Whether the order of programs decides the last bits of a sum."""
    adds = (op for op in walk_function(function) if isinstance(op, Atomic) and op.kind == "add")
    return any(op.value.tile.dtype.is_float for op in adds)


def _sizes(job: ReferenceJob) -> list[tuple[str, tuple[int, ...]]]:
    arguments = job.binding.arguments
    return [(name, value.size) for name, value in arguments if isinstance(value, TensorRef)]


class CandidateBinder:
    """Binds artifacts of one kernel call, whose first capture is saved in ``folder``."""

    def __init__(
        self, bound: BoundKernel, args: tuple[Any, ...], basis: Captured, folder: Path
    ) -> None:
        self._bound = bound
        self._args = args
        self._basis = basis
        self._folder = folder

    @property
    def depends_on_config(self) -> bool:
        """Whether host code looks at Configs."""
        return self._basis.depends_on_config

    def bind(self, config: Config, artifact: Artifact) -> Binding:
        """The launch arguments of the artifact of a Config."""
        captured, extra = self._capture(config)
        return captured.bind_artifact(artifact, extra)

    def reference(self, config: Config, *, seed: int = 0) -> ReferenceJob:
        """How to find out what the kernel gives under a Config (and, as a rule, under all)."""
        captured, extra = self._capture(config)
        blocks = config.get("block_sizes", [])
        is_fixed = captured.depends_on_config
        sizes = reference_sizes(captured.function, blocks, may_grow=not is_fixed)
        is_on_host = captured.launch.device.type == "cpu"
        return ReferenceJob(
            captured.function,
            _as_pairs(sizes),
            captured.bind_function(extra),
            choose_num_programs(captured.function, sizes, is_on_host=is_on_host),
            seed,
        )

    def release(self, binding: Binding) -> None:
        """Remove what was saved for this binding alone."""
        if binding.extra_storages is not None:
            binding.extra_storages.unlink(missing_ok=True)

    def _capture(self, config: Config) -> tuple[Captured, Path | None]:
        if not self._basis.depends_on_config:
            return self._basis, None
        captured = capture(self._bound, self._args, config, self._basis)
        return captured, save(captured, self._folder)


def _as_pairs(sizes: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(sizes.items()))


def save_baseline(function: Callable[..., Any], args: tuple[Any, ...], folder: Path) -> Path:
    """Run the function on copies of the arguments and save the tensors it returns."""
    return save_expected(list(tensors_in(function(*copy_arguments(args)))), folder)
