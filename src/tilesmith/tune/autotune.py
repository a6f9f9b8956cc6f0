"""The tuner that kernels are given: what a first call uses, what ``autotune`` does.

A first call without any Config takes a stored winner, else the default; it searches only when
asked to. Nothing here makes a kernel unusable: where no candidate works, a safe Config or the
reference interpreter is used, with a warning.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import tilesmith.exc as errors
from tilesmith.diagnostics.kernel_warnings import TuningFailed
from tilesmith.diagnostics.location import UNKNOWN
from tilesmith.diagnostics.wording import first_line
from tilesmith.jit.bound_kernel import BoundKernel
from tilesmith.jit.runners import choose_runner
from tilesmith.jit.tuner import MultiRequest, TuneRequest
from tilesmith.jit.typed import searches_at_first_call
from tilesmith.schedule.config import Config
from tilesmith.schedule.spec import ConfigSpec
from tilesmith.store.lookup import usable_config
from tilesmith.tune.archive import Archive
from tilesmith.tune.context import Case, Deadline
from tilesmith.tune.listener import EndListener, Listener, SafeListener
from tilesmith.tune.options import TuneOptions, options_from_settings
from tilesmith.tune.report.listeners import SpaceListener, choose_listeners
from tilesmith.tune.report.log import LogListener
from tilesmith.tune.result import StopReason, TuneResult
from tilesmith.tune.search.methods import find_method
from tilesmith.tune.search_run import SearchRun
from tilesmith.tune.workers import AGGREGATIONS
from tilesmith.tune.workspace import Workspace

LOG = logging.getLogger("tilesmith.autotune")
RELATIVE_TO = (None, "default", "baseline")
REFERENCE = "the reference interpreter"
SINGLE = MultiRequest(TuneRequest())
"""One set of arguments, whose times stand for themselves."""


class Autotuner:
    """Chooses Configs by measuring them, or by having measured them before."""

    takes_stored = True

    def __init__(self, watchers: Sequence[Listener] = ()) -> None:
        self._watchers = tuple(watchers)
        """Told of every search, beside the reports that its options ask for."""

    def first_config(self, bound: BoundKernel, args: tuple[Any, ...]) -> Config | None:
        """For a first call, with nothing stored: measured now; None: the given or the default."""
        if not searches_at_first_call(bound):
            return None
        options = replace_configs(options_from_settings(bound.settings), bound)
        found = self._search([Case(bound, args)], options)
        if found is None:
            bound.install(None)
        return found

    def tune(
        self, bound: BoundKernel, args: tuple[Any, ...], request: TuneRequest
    ) -> Config | None:
        """The best Config that a search finds; None if no candidate works."""
        options = options_from_settings(bound.settings, request.keywords, request.budget_s)
        watchers = [] if request.on_end is None else [EndListener(request.on_end)]
        tuner = Autotuner([*self._watchers, *watchers])
        return tuner._find([Case(bound, args)], options, is_forced=request.is_forced)

    def tune_multi(
        self, cases: Sequence[tuple[BoundKernel, tuple[Any, ...]]], request: MultiRequest
    ) -> Config | None:
        """One Config for several workloads."""
        _check_multi(cases, request)
        single = request.request
        bound = cases[0][0]
        options = options_from_settings(bound.settings, single.keywords, single.budget_s)
        if request.relative_to == "baseline" and options.settings.autotune_baseline_fn is None:
            raise ValueError('relative_to="baseline" needs autotune_baseline_fn')
        listed = [Case(*case) for case in cases]
        return self._find(listed, options, request, is_forced=single.is_forced)

    def _find(
        self,
        cases: Sequence[Case],
        options: TuneOptions,
        multi: MultiRequest | None = None,
        *,
        is_forced: bool,
    ) -> Config | None:
        """What is given or stored, unless ``is_forced``; else what a search finds."""
        bound = cases[0].bound
        if not choose_runner(bound.settings, bound.target, bound.definition.backends).is_compiling:
            return bound.default_config()
        if options.budget_s <= 0.0:
            return self._find_stored(cases, options, multi) or bound.default_config()
        if not (is_forced or options.settings.force_autotune):
            if len(bound.configs) == 1:
                return bound.configs[0]
            options = replace_configs(options, bound)
            stored = self._find_stored(cases, options, multi)
            if stored is not None:
                return stored
        return self._search(cases, options, multi)

    def _search(
        self, cases: Sequence[Case], options: TuneOptions, multi: MultiRequest | None = None
    ) -> Config | None:
        bound = cases[0].bound
        settings = bound.settings
        name = bound.definition.name
        if settings.disallow_autotuning:
            variable = "TILESMITH_DISALLOW_AUTOTUNING"
            raise errors.AutotuningDisallowedInEnvironment(function=name, variable=variable)
        if bound.device.type not in bound.definition.backends.of(bound.target).device_types:
            problem = f"its arguments are on {bound.device}, which does not run {bound.target} code"
            raise errors.AutotuneError(function=name, problem=problem)
        users: Any = options.settings.autotuner_fn
        if users is not None:
            # A factory of something with ``autotune()``, or a function that returns.
            made = users(bound, cases[0].args)
            found = made.autotune() if hasattr(made, "autotune") else made
            return found if isinstance(found, Config) else Config.from_dict(found)
        note = find_method(options.settings.autotuner).note
        if note:
            LOG.warning("%s", note)
        seeds = [options.seed + number for number in range(options.settings.autotune_best_of_k)]
        results = [self._run(cases, options.with_seed(seed), multi) for seed in seeds]
        measured = [result for result in results if result.is_measured]
        return settle(bound, min(measured or results, key=lambda result: result.ms))

    def _run(
        self, cases: Sequence[Case], options: TuneOptions, multi: MultiRequest | None
    ) -> TuneResult:
        """One search. What it measures later ones recall; the best winner of all is stored."""
        bound, deadline = cases[0].bound, Deadline(options.budget_s)
        with ExitStack() as stack:
            workspace = Workspace(cases, options, multi or SINGLE, deadline, stack)
            archive = Archive(cases, options, multi)
            space = SpaceListener(bound.definition.name, bound.config_spec, options.settings)
            listener = SafeListener([*choose_listeners(options), space, *self._watchers])
            return SearchRun(cases, options, archive, listener, workspace).run()

    def _find_stored(
        self, cases: Sequence[Case], options: TuneOptions, multi: MultiRequest | None = None
    ) -> Config | None:
        """A winner of an earlier search, if the cache has one and the kernel takes it."""
        bound = cases[0].bound
        archive = Archive(cases, options, multi)
        winner = None if options.settings.skip_cache else archive.find_winner()
        config = usable_config(bound, winner, lambda: archive.key)
        if winner is None or config is None:
            return None
        result = TuneResult(config, StopReason.CACHED, ms=winner.median_ms)
        log = LogListener(options.log_level, kernel=bound.definition.name)
        SafeListener([log, *self._watchers]).on_end(result)
        return config


def replace_configs(options: TuneOptions, bound: BoundKernel) -> TuneOptions:
    """Options with the decorator's list of Configs as the only candidates, if it has several."""
    return replace(options, configs=tuple(bound.configs)) if len(bound.configs) > 1 else options


def settle(bound: BoundKernel, result: TuneResult) -> Config | None:
    """The Config to use after a search: its winner, or one that is not known to fail."""
    if result.is_measured:
        return result.config
    config = result.config
    if result.failures and result.stop is not StopReason.NO_RUNNER:
        # The first Config of the fallback chain that has not failed; None: all have.
        spec = bound.config_spec
        failed = {outcome.config for outcome in result.failures}
        chain = map(spec.normalize, spec.fallback_configs())
        config = next((config for config in chain if config not in failed), None)
    bound.definition.warnings.warn(
        TuningFailed,
        loc=UNKNOWN,
        function=bound.definition.name,
        problem=first_line(result.problem).rstrip(":") or result.stop.value,
        used=REFERENCE if config is None else config,
    )
    return config


def _form(spec: ConfigSpec) -> Hashable:
    """What two specifications must share for a Config to be one of both."""
    return (spec.target, spec.supported_keys, tuple(len(slots) for slots in spec.lists.values()))


def _check_multi(
    cases: Sequence[tuple[BoundKernel, tuple[Any, ...]]], request: MultiRequest
) -> None:
    """Mistakes in a request for several workloads."""
    if not cases:
        raise ValueError("autotune_multi needs at least one set of arguments")
    if request.aggregation not in AGGREGATIONS:
        names = ", ".join(AGGREGATIONS)
        raise ValueError(f"unknown aggregation {request.aggregation!r}; expected one of {names}")
    if request.relative_to not in RELATIVE_TO:
        names = ", ".join(map(repr, RELATIVE_TO))
        raise ValueError(f"relative_to={request.relative_to!r}; expected one of {names}")
    if len({_form(bound.config_spec) for bound, _ in cases}) > 1:
        raise errors.AutotuneError(
            function=cases[0][0].definition.name,
            problem="the sets of arguments have different config spaces",
            fix="tune them apart, with kernel.autotune(args)",
        )
