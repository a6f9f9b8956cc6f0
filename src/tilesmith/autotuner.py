"""Tuning by hand: search methods, tuning of other functions, and fragments for tunables."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, cast

from tilesmith.exc import AutotuneError, InvalidConfigKeys, InvalidConfigValue
from tilesmith.frontend.tracing.host_run import copy_tensors
from tilesmith.jit.bound_kernel import BoundKernel
from tilesmith.jit.tuner import TuneRequest
from tilesmith.lab.workload.loading import find_device, find_difference, synchronize, time_calls
from tilesmith.schedule.config import Config
from tilesmith.schedule.space.fragments import (
    BooleanFragment,
    EnumFragment,
    Fragment,
    IntegerFragment,
    ListOf,
    PermutationFragment,
    PowerOfTwoFragment,
)
from tilesmith.schedule.space.slots import Dimension
from tilesmith.schedule.spec import ConfigSpec
from tilesmith.settings import Settings
from tilesmith.store.outcome import Candidate, Verdict
from tilesmith.tune.archive import Archive
from tilesmith.tune.context import Case, Deadline, EmittedCandidate, Records, Samples
from tilesmith.tune.jobs import BuildReply, CheckReply
from tilesmith.tune.listener import SafeListener, SearchStart
from tilesmith.tune.options import TuneOptions, options_from_settings
from tilesmith.tune.report.listeners import choose_listeners
from tilesmith.tune.result import TuneResult
from tilesmith.tune.search.candidate_pool import SearchSpace
from tilesmith.tune.search.methods import make_method
from tilesmith.tune.tuner import TuneContext, Tuner

if TYPE_CHECKING:
    from tilesmith.dispatch.tuning import ShapeDispatch
    from tilesmith.fleet.scheduler import FleetResult
    from tilesmith.fleet.tuning import FleetRequest
    from tilesmith.jit.kernel import Kernel

CompileFunction = Callable[[Config], Callable[..., Any]]


@dataclass(frozen=True)
class TunedFunction:
    """A function that is made from choices, with the arguments to measure it on."""

    compile_fn: CompileFunction
    args: tuple[Any, ...]
    device: str
    expected: Any = None
    """What results must agree with, if anything."""

    @property
    def name(self) -> str:
        """What logs call it."""
        return getattr(self.compile_fn, "__name__", type(self.compile_fn).__name__)


class ImmediateBuilder:
    """Nothing is built ahead: candidates are ready at once."""

    num_jobs = 1

    def __init__(self) -> None:
        self._waiting: list[EmittedCandidate] = []

    def submit(self, emitted: EmittedCandidate) -> None:
        """Keep it until it is collected."""
        self._waiting.append(emitted)

    def collect(self, timeout_s: float) -> Sequence[tuple[EmittedCandidate, BuildReply]]:
        """All candidates that were submitted."""
        done, self._waiting = self._waiting, []
        return [(emitted, BuildReply(Verdict.OK)) for emitted in done]

    @property
    def num_pending(self) -> int:
        """Candidates that were not collected."""
        return len(self._waiting)


class InProcessRunner:
    """Calls functions in this process."""

    disturbances = (0, 0)
    """Nobody looks for them here."""

    def __init__(self, subject: TunedFunction, settings: Settings) -> None:
        self._subject = subject
        self._settings = settings
        self._functions: dict[str, Callable[..., Any]] = {}

    def check(self, emitted: EmittedCandidate, timeout_s: float) -> CheckReply:
        """Make the function, call it once on copies, compare."""
        subject = self._subject
        try:
            function = subject.compile_fn(emitted.candidate.config)
        except Exception as error:
            return CheckReply(Verdict.BUILD_ERROR, f"{type(error).__name__}: {error}")
        args = copy_tensors(subject.args)
        start = time.perf_counter()
        try:
            actual = function(*args)
            synchronize(subject.device)
        except Exception as error:
            return CheckReply(Verdict.RUN_ERROR, f"{type(error).__name__}: {error}")
        first_ms = 1e3 * (time.perf_counter() - start)
        if subject.expected is not None and self._settings.autotune_accuracy_check:
            limits = self._settings.autotune_baseline_atol, self._settings.autotune_baseline_rtol
            difference = find_difference(actual, subject.expected, *limits)
            if difference:
                return CheckReply(Verdict.WRONG, difference)
        self._functions[emitted.key] = function
        return CheckReply(Verdict.OK, "", first_ms)

    def time(self, keys: Sequence[str], repeats: int, timeout_s: float) -> Samples:
        """Samples of functions that are called in turns."""
        args = self._subject.args
        works = {str(n): partial(self._functions[key], *args) for n, key in enumerate(keys)}
        timings = time_calls(works, repeats, self._subject.device)
        return tuple(timing.samples_ms for timing in timings.values())

    def knows(self, key: str) -> bool:
        """Whether it was checked."""
        return key in self._functions

    def forget(self, key: str) -> None:
        """Drop the function."""
        self._functions.pop(key, None)


class NoRecords(Records):
    """Nothing is known before, nothing is kept."""


def autotune(
    tunables: Mapping[str, Fragment],
    compile_fn: CompileFunction,
    args: Sequence[Any],
    *,
    baseline_fn: Callable[..., Any] | None = None,
    algorithm: str = "PatternSearch",
    device: Any = None,
    **options: Any,
) -> Config:
    """The fastest choice of values for a function that is made from them.

    Args:
        tunables: the values that each name may take.
        compile_fn: makes the function from a Config of these names.
        args: what the function is called with; it should leave them as they are.
        baseline_fn: gives the right result for the same arguments.
        algorithm: a search method.
        device: where the function runs; by default where its first tensor is.
        options: ``autotune_...`` settings, and options of the method.
    """
    values = tuple(args)
    made = options_from_settings(Settings(), {**options, "algorithm": algorithm})
    where = find_device(values) if device is None else str(device)
    expected = None if baseline_fn is None else baseline_fn(*copy_tensors(values))
    return tune_subject(TunedFunction(compile_fn, values, where, expected), tunables, made).config


def tune_subject(
    subject: TunedFunction, tunables: Mapping[str, Fragment], options: TuneOptions
) -> TuneResult:
    """Search for the fastest choice; raises AutotuneError if none works."""
    # Search methods ask of a specification only what a plain space has as well.
    spec = cast("ConfigSpec", PlainSpace(tunables))
    default = Candidate(spec.default_config(), "default")
    seeds = (*(Candidate(spec.normalize(c), "user") for c in options.seed_configs), default)
    space = SearchSpace(spec, seeds, tuple(options.settings.autotune_config_overrides.items()))
    search = make_method(options.settings.autotuner, options.method_options)(space, options.seed)
    listener = SafeListener(choose_listeners(options))
    deadline = Deadline(options.budget_s)
    judge = "nothing" if subject.expected is None else "the baseline function"
    start = SearchStart(
        subject.name, "", subject.device, search.name, options.seed, options.budget_s, judge
    )
    context = TuneContext(
        emit=lambda candidate: EmittedCandidate(str(candidate.config), candidate, ()),
        builder=ImmediateBuilder(),
        runner=InProcessRunner(subject, options.settings),
        records=NoRecords(),
        prepare=lambda: start,
        keep=lambda config: config,
        find_obstacle=lambda candidate: "",
        default=default.config,
        complexity=lambda config: sum(config[n] != default.config[n] for n in config),
        overlaps=False,
    )
    result = Tuner(search, context, options, deadline, listener).run()
    listener.on_end(result)
    if not result.is_measured:
        raise AutotuneError(function=subject.name, problem=result.problem)
    return result


class PlainSpace:
    """Has what search methods ask of a ConfigSpec; every combination of values is allowed."""

    def __init__(self, tunables: Mapping[str, Fragment]) -> None:
        self._fragments = dict(tunables)
        varied = [(n, fragment) for n, fragment in tunables.items() if fragment.cardinality > 1]
        self._dimensions = tuple(Dimension(n, None, n, f, f.default) for n, f in varied)

    def forms(self) -> dict[str, PlainSpace]:
        """There is only one."""
        return {"": self}

    def default_config(self) -> Config:
        """Every tunable at its default."""
        return Config.from_dict({n: fragment.default for n, fragment in self._fragments.items()})

    def normalize(self, config: Config | Mapping[str, Any]) -> Config:
        """Every tunable in order; raises ``InvalidConfig`` where a value is not allowed."""
        unknown = [name for name in config if name not in self._fragments]
        if unknown:
            raise InvalidConfigKeys(keys=unknown)
        values = {**self.default_config(), **config}
        for name, fragment in self._fragments.items():
            if not fragment.contains(values[name]):
                raise InvalidConfigValue(key=name, value=values[name], allowed=fragment.expects)
        return Config.from_dict({name: values[name] for name in self._fragments})

    def fit(self, values: Mapping[str, Any]) -> Config:
        """The Config with these values, those that are not allowed at their defaults."""
        known = {name: values[name] for name in self._fragments if name in values}
        kept = {n: value for n, value in known.items() if self._fragments[n].contains(value)}
        return Config.from_dict({**self.default_config(), **kept})

    def dimensions(self) -> tuple[Dimension, ...]:
        """Tunables with a choice."""
        return self._dimensions

    def active_dimensions(self, config: Config) -> tuple[Dimension, ...]:
        """All tunables: none depends on the value of another."""
        return self._dimensions

    def random_config(self, rng: Random) -> Config:
        """A random value for each."""
        return self.fit({item.key: item.fragment.random(rng) for item in self._dimensions})


class BoundSearch:
    """A search by one method; the options are the method's, and settings of the search."""

    method: ClassVar[str] = ""

    def __init__(self, kernel: BoundKernel, args: Sequence[Any], **options: Any) -> None:
        self.kernel = kernel
        self.args = tuple(args)
        self.options = options

    def autotune(self, *, skip_cache: bool = False) -> Config:
        """Search, use the winner from now on and return it."""
        # It may be what the kernel's own ``autotuner_fn`` gives.
        options: dict[str, Any] = {**self.options, "method": self.method, "autotuner_fn": None}
        if skip_cache:
            options["skip_cache"] = True
        return self.kernel.autotune(self.args, **options)


class ModelFirstSearch(BoundSearch):
    """The device model's best guesses, then local search."""

    method = "ModelFirstSearch"


class PatternSearch(BoundSearch):
    """Hill climbing from several places."""

    method = "PatternSearch"


class DifferentialEvolutionSearch(BoundSearch):
    """A population whose members are recombined."""

    method = "DifferentialEvolutionSearch"


class RandomSearch(BoundSearch):
    """Random Configs."""

    method = "RandomSearch"


class LFBOPatternSearch(BoundSearch):
    """Helion's name: ``ModelFirstSearch``, and a line that says so."""

    method = "LFBOPatternSearch"


class LFBOTreeSearch(BoundSearch):
    """As ``LFBOPatternSearch``."""

    method = "LFBOTreeSearch"


class DESurrogateHybrid(BoundSearch):
    """As ``LFBOPatternSearch``."""

    method = "DESurrogateHybrid"


class FiniteSearch(BoundSearch):
    """The Configs of ``configs=[...]``."""

    method = "FiniteSearch"


def from_cache(
    *, max_configs: int | None = None, configs: Sequence[Config] = ()
) -> Callable[..., FiniteSearch]:
    """An ``autotuner_fn`` that measures what earlier searches found good, and ``configs``.

    Example:
        ``@kernel(autotuner_fn=from_cache(configs=[Config(block_sizes=[64])]))``
    """

    def make(bound: BoundKernel, args: Sequence[Any], **_: Any) -> FiniteSearch:
        options = options_from_settings(bound.settings)
        known = Archive([Case(bound, tuple(args))], options).similar_configs()[:max_configs]
        return FiniteSearch(bound, args, configs=list(dict.fromkeys([*known, *configs])))

    return make


def tune_shapes(
    kernel: Kernel[..., Any],
    arg_sets: Sequence[tuple[Any, ...]],
    *,
    within: float = 0.03,
    max_configs: int = 8,
    budget: float = 10.0,
) -> ShapeDispatch:
    """Search a few configs that serve many shapes, and decide by sizes which of them each gets.

    Example:
        ``found = tune_shapes(matmul, samples); found.path.write_text(found.file_text())``

    Args:
        kernel: of one launch; an ``aot_kernel`` follows the decision where it is written.
        arg_sets: arguments, each a shape.
        within: how much slower than their own best shapes may be in the mean; 0.03 is 3 %.
        max_configs: at most this many.
        budget: seconds for each search: one for each shape, and one with the best of all shapes.
    """
    # Kernels load parts of torch that most users of this module do not need.
    dispatch = importlib.import_module("tilesmith.dispatch.tuning")
    tuner = importlib.import_module("tilesmith.tune.autotune").Autotuner
    goal = dispatch.Goal(within, max_configs, budget)
    return dispatch.tune_shapes(kernel, arg_sets, tuner, goal)


def tune_many(
    jobs: Sequence[tuple[Kernel[..., Any], tuple[Any, ...]]],
    *,
    on: str = "local",
    budget: float | None = None,
    force: bool = True,
    **options: Any,
) -> list[FleetResult]:
    """Tune kernels, each with its arguments, on many devices at once; one result for each kind.

    Example:
        ``tune_many([(matmul, (x, y)), (softmax, (x,))], on="ray://head:10001", budget=60)``

    Args:
        jobs: kernels with their arguments.
        on: ``local`` (all GPUs of this machine), ``local:N``, ``ray`` (the cluster of RAY_ADDRESS,
            or of this machine), or the address of a Ray cluster.
        budget: seconds for each job.
        force: whether to search where a winner is stored.
        options: settings and options of the search, as of ``kernel.autotune``.
    """
    fleet = importlib.import_module("tilesmith.fleet.tuning")
    wanted: FleetRequest = fleet.FleetRequest(on, TuneRequest(force, budget, options))
    return fleet.tune_fleet(jobs, wanted)


__all__ = [
    "BooleanFragment", "DESurrogateHybrid", "DifferentialEvolutionSearch", "EnumFragment",
    "FiniteSearch", "IntegerFragment", "LFBOPatternSearch", "LFBOTreeSearch", "ListOf",
    "ModelFirstSearch", "PatternSearch", "PermutationFragment", "PowerOfTwoFragment",
    "RandomSearch", "autotune", "from_cache", "tune_many", "tune_shapes",
]  # fmt: skip
