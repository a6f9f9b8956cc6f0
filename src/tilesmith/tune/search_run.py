"""One search from start to end: workspace, search method, search loop, result."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from math import prod
from pathlib import Path
from typing import Any, cast

from tilesmith.exc import InvalidConfig
from tilesmith.frontend.tracing.host_run import copy_tensors
from tilesmith.lab.workload.capture import CaptureError
from tilesmith.schedule.config import Config
from tilesmith.schedule.spec import ConfigSpec
from tilesmith.store.lookup import describe_arguments, search_overrides
from tilesmith.store.outcome import Candidate
from tilesmith.tune.archive import Archive
from tilesmith.tune.context import Case, RunnerLostError
from tilesmith.tune.jobs import PrepareReply
from tilesmith.tune.listener import Listener, SearchStart, space_size
from tilesmith.tune.options import TuneOptions, as_configs
from tilesmith.tune.result import StopReason, TuneResult
from tilesmith.tune.runner.build import publish_program
from tilesmith.tune.search.candidate_pool import Search, SearchSpace
from tilesmith.tune.search.classic_searches import FiniteSearch
from tilesmith.tune.search.methods import make_method
from tilesmith.tune.tuner import DEFAULT_ORIGIN, TuneContext, Tuner
from tilesmith.tune.workspace import Workspace

LOG = logging.getLogger("tilesmith.autotune")
NUM_RANKED = 16
"""Configs of the device model that a search starts from."""
TRUSTED_ORIGINS = ("user", "given", "default")


def complexity(config: Config, spec: ConfigSpec) -> tuple[int, ...]:
    """Smaller is simpler; compared in this order.

    Not what the kernel would run with anyway, keys away from their defaults, accesses that are not
    by pointers, program ids that are not flat, stages, warps, and the number of elements in a tile.
    """
    full = spec.normalize(config)
    return (
        int(full != spec.normalize(spec.default_config())),
        len(full.minimize(spec)),
        _num_special(full.get("indexing", "pointer")) + _num_special(full.get("atomic_indexing")),
        int(full.get("pid_type", "flat") != "flat"),
        int(full.get("num_stages", 0)),
        int(full.get("num_warps", 0)),
        prod(full.get("block_sizes", [])),
    )


def _num_special(indexing: Any) -> int:
    kinds = cast("list[str]", indexing if isinstance(indexing, list) else [indexing or "pointer"])
    return sum(kind != "pointer" for kind in kinds)


def make_seeds(
    spec: ConfigSpec, given: Sequence[Config], known: Iterable[Config]
) -> tuple[Candidate, ...]:
    """Ranked, best first, none twice; what does not fit the kernel is left out and logged."""
    ordered = [
        *((config, "user") for config in given),
        (spec.default_config(), DEFAULT_ORIGIN),
        *((config, "journal") for config in known),
        *((ranked.config, "model") for ranked in spec.ranked_configs(NUM_RANKED)),
    ]
    seeds: dict[Config, Candidate] = {}
    for config, origin in ordered:
        try:
            normal = spec.normalize(config)
        except InvalidConfig as error:
            level = logging.WARNING if origin == "user" else logging.DEBUG
            LOG.log(level, "a seed config (%s) is left out: %s", origin, str(error).splitlines()[0])
            continue
        if normal not in seeds:
            seeds[normal] = Candidate(normal, origin, spec.predict(normal).total_ms)
    return tuple(seeds.values())


class SearchRun:
    """One search of a kernel in its workspace; ``listener`` is told what happens."""

    def __init__(
        self,
        cases: Sequence[Case],
        options: TuneOptions,
        archive: Archive,
        listener: Listener,
        workspace: Workspace,
    ) -> None:
        self._cases, self._options = cases, options
        self._archive, self._listener = archive, listener
        self._workspace, self._deadline = workspace, workspace.deadline
        self._spec = spec = cases[0].bound.config_spec
        self._seeds = make_seeds(spec, options.seed_configs, archive.similar_configs())
        self._search = self._make_search()

    def run(self) -> TuneResult:
        """Search; the result says what was found, or why nothing could be."""
        try:
            self._workspace.capture()
            result = self._run()
        except (CaptureError, RunnerLostError) as error:
            result = TuneResult(
                self._spec.default_config(),
                StopReason.NO_RUNNER,
                seconds=self._deadline.elapsed_s,
                budget_s=self._options.budget_s,
                problem=str(error),
            )
        self._listener.on_end(result)
        return result

    def _run(self) -> TuneResult:
        workspace, options = self._workspace, self._options
        context = TuneContext(
            emit=workspace.emit,
            builder=workspace.builder,
            runner=workspace.runner,
            records=self._archive,
            prepare=self._prepare,
            keep=self._keep,
            find_obstacle=make_obstacle_finder(self._spec),
            default=self._spec.default_config().updated(**search_overrides(options.settings)),
            complexity=lambda config: complexity(config, self._spec),
            roofline_ms=self._roofline_ms,
            disturbed=lambda: workspace.disturbed,
            overlaps=workspace.overlaps,
            find_fault=make_user_check(self._cases, options),
            timeline=workspace.timeline,
            find_dependence=self._find_dependence if options.settings.deterministic else None,
        )
        tuner = Tuner(self._search, context, options, self._deadline, self._listener)
        result = tuner.run()
        emitted = tuner.find_emitted(result.config) if result.is_measured else None
        try:
            # The caller's process finds what was built for the winner, and need not build it again.
            for program in emitted.programs if emitted else ():
                publish_program(program, Path(options.settings.cache_dir))
        except Exception as error:  # it will be built again, that is all
            LOG.debug("the winner's code is not published: %s", error)
        return result

    @property
    def _roofline_ms(self) -> float | None:
        return self._spec.model.roofline_ms() if len(self._cases) == 1 else None

    @property
    def _meaning(self) -> str:
        """What a time stands for, where it is not simply one."""
        goal = self._workspace.goal
        if len(self._cases) == 1 and goal.relative_to is None:
            return ""
        kind = "the largest" if goal.aggregation == "max" else "the geometric mean"
        ratio = f", over the {goal.relative_to}'s: 1 ms is as fast" if goal.relative_to else ""
        return f"{kind} of {len(self._cases)} sets of arguments{ratio}"

    def _make_search(self) -> Search:
        options, spec = self._options, self._spec
        overrides = tuple(search_overrides(options.settings).items())
        space = SearchSpace(spec, self._seeds, overrides, lambda c: spec.predict(c).total_ms)
        is_listed = bool(options.configs)
        name = "FiniteSearch" if is_listed else options.settings.autotuner
        keywords = {"configs": options.configs} if is_listed else options.method_options
        search = make_method(name, keywords)(space, options.seed)
        for config, error in _rejected(search):
            LOG.warning("%s is left out: %s", config, str(error).splitlines()[0])
        return search

    def _prepare(self) -> SearchStart:
        judge = self._workspace.prepare()
        if self._options.settings.autotune_baseline_accuracy_check_fn is not None:
            judge = PrepareReply("the accuracy check function")
        options, bound = self._options, self._cases[0].bound
        rejected = [config for config, _ in _rejected(self._search)]
        listed = [config for config in options.configs if config not in rejected]
        given = tuple(Candidate(config, "given") for config in listed)
        parameters = bound.definition.parameters
        return SearchStart(
            kernel=bound.definition.name,
            target=str(bound.target),
            device=str(bound.device),
            method=self._search.name,
            seed=options.seed,
            budget_s=options.budget_s,
            judge=judge.judge,
            judge_reason=judge.reason,
            seeds=given or self._seeds,
            roofline_ms=self._roofline_ms,
            num_known=self._archive.num_known,
            space_size=len(given) or space_size(self._spec),
            arguments="; ".join(
                describe_arguments(parameters, case.args, with_values=True) for case in self._cases
            ),
            meaning=self._meaning,
            code_of=bound.to_code,
        )

    def _find_dependence(self, candidate: Candidate) -> str:
        found = (case.bound.order_dependence(candidate.config) for case in self._cases)
        return next(filter(None, found), "")

    def _keep(self, config: Config) -> Config | None:
        keep = self._options.settings.autotune_config_filter
        kept = True if keep is None else keep(config)
        if kept is None or isinstance(kept, bool):
            return config if kept else None
        if kept is config:
            return config
        try:
            (other,) = as_configs([kept])
        except TypeError:
            raise TypeError(
                f"autotune_config_filter returned {type(kept).__name__}; expected the Config to "
                "try (or True), or None (or False) to leave it out"
            ) from None
        return self._spec.normalize(other)


def _rejected(search: Search) -> Sequence[tuple[Config, InvalidConfig]]:
    """What someone listed and the kernel does not take."""
    return search.rejected if isinstance(search, FiniteSearch) else ()


def make_user_check(
    cases: Sequence[Case], options: TuneOptions
) -> Callable[[Candidate], str] | None:
    """What finds faults by ``check(actual, expected)``; None if the user has no such function.

    It runs in the user's own process, and only on candidates that a runner has run.
    """
    settings = options.settings
    check = settings.autotune_baseline_accuracy_check_fn
    if check is None:
        return None
    functions = [settings.autotune_baseline_fn or case.bound.run_ref for case in cases]
    expected = [right(*copy_tensors(case.args)) for right, case in zip(functions, cases)]

    def find_fault(candidate: Candidate) -> str:
        for case, right in zip(cases, expected):
            actual = case.bound.compile_config(candidate.config)(*copy_tensors(case.args))
            # A check says no by raising or by returning False.
            try:
                answer = check(actual, right)
            except Exception as error:
                return f"{type(error).__name__}: {error}"
            if answer is False:
                return "the accuracy check says no"
        return ""

    return find_fault


def make_obstacle_finder(spec: ConfigSpec) -> Callable[[Candidate], str]:
    """What the model has against a candidate; Configs of people and the default are tried.

    Where not even the default has all its values in registers, candidates may spill as well.
    """
    may_spill = spec.feasibility(spec.default_config()) is not None

    def find(candidate: Candidate) -> str:
        is_trusted = candidate.origin in TRUSTED_ORIGINS
        problem = "" if is_trusted else spec.feasibility(candidate.config) or ""
        if problem and may_spill and spec.resources(spec.settle(candidate.config)).can_be_built:
            return ""
        return problem

    return find
