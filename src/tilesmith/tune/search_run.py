"""One search from start to end: workspace, search method, search loop, result."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, cast

from tilesmith.exc import InvalidConfig
from tilesmith.jit.tuner import MultiRequest
from tilesmith.lab.workload.capture import CaptureError
from tilesmith.schedule.config import Config
from tilesmith.schedule.spec import ConfigSpec
from tilesmith.store.outcome import Candidate
from tilesmith.tune.archive import Archive
from tilesmith.tune.case import Case, make_user_check
from tilesmith.tune.context import RunnerLostError, TuneContext
from tilesmith.tune.jobs import PrepareReply
from tilesmith.tune.limits import Deadline
from tilesmith.tune.listener import (
    Listener,
    SearchStart,
    arguments_text,
    space_size,
    time_in_finals,
)
from tilesmith.tune.options import TuneOptions, as_configs
from tilesmith.tune.result import Final, StopReason, TuneResult, describe_total_failure
from tilesmith.tune.runner.build import publish_program
from tilesmith.tune.search.classic_searches import FiniteSearch
from tilesmith.tune.search.interface import Search, SearchSpace
from tilesmith.tune.search.methods import make_method
from tilesmith.tune.tuner import Tuner
from tilesmith.tune.workers import Workers
from tilesmith.tune.workspace import Workspace

LOG = logging.getLogger("tilesmith.autotune")
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


@dataclass(frozen=True)
class SearchPlan:
    """What to search, and who is told."""

    cases: Sequence[Case]
    options: TuneOptions
    seeds: tuple[Candidate, ...]
    records: Archive
    listener: Listener
    goal: MultiRequest

    @property
    def spec(self) -> ConfigSpec:
        """The specification all candidates follow."""
        return self.cases[0].bound.config_spec

    @property
    def meaning(self) -> str:
        """What a time stands for, where it is not simply one."""
        relative_to = self.goal.relative_to
        if len(self.cases) == 1 and relative_to is None:
            return ""
        kind = "the largest" if self.goal.aggregation == "max" else "the geometric mean"
        ratio = f", over the {relative_to}'s: 1 ms is as fast" if relative_to else ""
        return f"{kind} of {len(self.cases)} sets of arguments{ratio}"


def run_search(plan: SearchPlan, deadline: Deadline, workers: Workers) -> TuneResult:
    """Search; the result says what was found, or why nothing could be."""
    search = _make_search(plan)
    try:
        workspace = Workspace(plan.cases, plan.options, deadline, plan.goal, workers)
        result = _Run(plan, search, workspace, deadline).run()
    except (CaptureError, RunnerLostError) as error:
        result = TuneResult(
            plan.spec.default_config(),
            StopReason.NO_RUNNER,
            seconds=deadline.elapsed_s,
            budget_s=plan.options.budget_s,
            problem=str(error),
        )
    plan.listener.on_end(result)
    return result


class _Run:
    """A search in its workspace."""

    def __init__(
        self, plan: SearchPlan, search: Search, workspace: Workspace, deadline: Deadline
    ) -> None:
        self._plan = plan
        self._workspace = workspace
        self._deadline = deadline
        self._judge = PrepareReply("")
        self._search = search
        context = TuneContext(
            emit=workspace.emit,
            builder=workspace.builder,
            runner=workspace.runner,
            records=plan.records,
            prepare=self._prepare,
            keep=self._keep,
            find_obstacle=make_obstacle_finder(plan.spec),
            complexity=lambda config: complexity(config, plan.spec),
            overlaps=workspace.overlaps,
            find_fault=make_user_check(plan.cases, plan.options),
            timeline=workspace.timeline,
            find_dependence=self._find_dependence if plan.options.is_deterministic else None,
        )
        self._tuner = Tuner(self._search, context, plan.options, deadline, plan.listener)
        self._tuner.roofline_ms = plan.spec.model.roofline_ms() if len(plan.cases) == 1 else None

    def run(self) -> TuneResult:
        """Search until something says stop."""
        result = self._tuner.run(self._finish)
        emitted = self._tuner.find_emitted(result.config) if result.is_measured else None
        try:
            # The caller's process finds what was built for the winner, and need not build it again.
            for program in emitted.programs if emitted else ():
                publish_program(program, self._plan.options.cache_dir)
        except Exception as error:  # it will be built again, that is all
            LOG.debug("the winner's code is not published: %s", error)
        return result

    def _prepare(self) -> SearchStart:
        self._judge = self._workspace.prepare()
        if self._plan.options.accuracy_check_fn is not None:
            self._judge = PrepareReply("the accuracy check function")
        plan, bound = self._plan, self._plan.cases[0].bound
        rejected = [config for config, _ in _rejected(self._search)]
        listed = [config for config in plan.options.configs if config not in rejected]
        given = tuple(Candidate(config, "given") for config in listed)
        parameters = bound.definition.parameters
        return SearchStart(
            kernel=bound.definition.name,
            target=str(bound.target),
            device=str(bound.device),
            method=self._search.name,
            seed=plan.options.seed,
            budget_s=plan.options.budget_s,
            judge=self._judge.judge,
            judge_reason=self._judge.reason,
            seeds=given or plan.seeds,
            roofline_ms=self._tuner.roofline_ms,
            num_known=plan.records.num_known,
            space_size=len(given) or space_size(plan.spec),
            arguments="; ".join(arguments_text(parameters, case.args) for case in plan.cases),
            meaning=plan.meaning,
        )

    def _find_dependence(self, candidate: Candidate) -> str:
        found = (case.bound.order_dependence(candidate.config) for case in self._plan.cases)
        return next(filter(None, found), "")

    def _keep(self, config: Config) -> Config | None:
        keep = self._plan.options.config_filter
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
        return self._plan.spec.normalize(other)

    def _finish(self, stop: StopReason, final: Final | None, problem: str) -> TuneResult:
        plan, tally = self._plan, self._tuner.tally
        default = plan.spec.normalize(plan.spec.default_config())
        tried = tally.find(default)
        alone_ms = tried.time_ms if tried and tried.verdict.is_timed else None
        result = TuneResult(
            plan.spec.default_config(),
            stop,
            num_tried=len(tally.outcomes),
            num_recalled=sum(outcome.is_recalled for outcome in tally.outcomes),
            counts=tally.counts,
            seconds=self._deadline.elapsed_s,
            budget_s=plan.options.budget_s,
            judge=self._judge.judge,
            default_ms=time_in_finals(default, final) or alone_ms,
            roofline_ms=self._tuner.roofline_ms,
            problem=problem,
            failures=tuple(tally.failures),
            timeline=self._workspace.timeline,
            disturbed=self._workspace.disturbed,
        )
        if final is not None:
            winner = final.winner
            found = tally.find(winner.config)
            return replace(
                result,
                config=winner.config,
                ms=winner.median_ms,
                spread=winner.spread,
                noise=final.noise,
                ties=len(final.ties) - 1,
                predicted_ms=found.candidate.predicted_ms if found else None,
            )
        missing = "a candidate" if tally.best is None else "the default config"
        cause = f"{stop.value} before {missing} was measured"
        if tally.failures and tally.best is None:
            cause = describe_total_failure(tally.failures)
        return replace(result, problem=problem or cause)


def _make_search(plan: SearchPlan) -> Search:
    options = plan.options
    space = SearchSpace(
        plan.spec,
        plan.seeds,
        tuple(options.overrides.items()),
        lambda config: plan.spec.predict(config).total_ms,
    )
    is_listed = bool(options.configs)
    name = "FiniteSearch" if is_listed else options.method
    keywords = {"configs": options.configs} if is_listed else options.method_options
    search = make_method(name, keywords)(space, options.seed)
    for config, error in _rejected(search):
        LOG.warning("%s is left out: %s", config, str(error).splitlines()[0])
    return search


def _rejected(search: Search) -> Sequence[tuple[Config, InvalidConfig]]:
    """What someone listed and the kernel does not take."""
    return search.rejected if isinstance(search, FiniteSearch) else ()


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
