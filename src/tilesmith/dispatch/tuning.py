"""Searches a small set of configs for many shapes, and which of them each gets.

First each shape is searched alone, for its own best. The best of all searches are then measured on
every shape, by the same processes and checks. From these times follow the configs, the decision
and the report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, Protocol

import tilesmith.exc as errors
from tilesmith.dispatch.cover import Timings, choose_configs, cover_logs, geomean_loss
from tilesmith.dispatch.decision import Features, Node, decided_logs, grow, leaves
from tilesmith.dispatch.decision_file import file_name, file_text
from tilesmith.jit.kernel import Kernel
from tilesmith.jit.tuner import TuneRequest
from tilesmith.schedule.config import Config
from tilesmith.store.lookup import describe_arguments
from tilesmith.store.outcome import Outcome
from tilesmith.targets import Target
from tilesmith.tune.listener import History, Listener


class Searcher(Protocol):
    """The part of a tuner that is needed here."""

    def tune(self, bound: Any, args: tuple[Any, ...], request: TuneRequest) -> Config | None:
        """Search."""
        ...


MakeTuner = Callable[[Sequence[Listener]], Searcher]
"""Makes a tuner that tells listeners of its searches."""
LEAVES_PER_CONFIG = 2


@dataclass(frozen=True)
class Goal:
    """What is asked for."""

    within: float = 0.03
    """How much slower than their own best shapes may be in the mean, as a share."""
    max_configs: int = 8
    budget_s: float = 10.0
    """For each search: one for each shape alone, and one with the configs of all."""
    max_pool: int = 40
    """Configs that are measured on every shape."""


@dataclass(frozen=True)
class Step:
    """What a number of configs comes to."""

    count: int
    loss: float
    """If every shape got the best of them."""
    decided_loss: float
    """With the decision by sizes."""
    root: Node


@dataclass(frozen=True)
class ShapeDispatch:
    """Times on all shapes, and for each number of configs the decision between them."""

    kernel: Kernel[..., Any]
    target: Target
    device: str
    timings: Timings
    steps: tuple[Step, ...]
    chosen: Step

    @property
    def path(self) -> Path:
        """Where ``aot_kernel`` looks for the decision."""
        source = Path(str(self.kernel.definition.source.file))
        return source.with_name(file_name(source, self.kernel.name, self.target))

    def file_text(self) -> str:
        """The decision as a Python file."""
        about = f"Configs of {self.kernel.name} on {self.device}.\n\n{self.report()}\n"
        return file_text(
            self.kernel.name,
            self.kernel.definition.parameters,
            self.timings,
            self.chosen.root,
            about,
        )

    def record(self) -> dict[str, Any]:
        """The same as plain values: what the choice costs, and what each shape gets."""
        timings, taken = self.timings, self._taken()
        shapes = enumerate(zip(timings.shapes, timings.best_ms))
        return {
            "kernel": self.kernel.name,
            "device": self.device,
            "loss": self.chosen.decided_loss,
            "losses": {step.count: step.decided_loss for step in self.steps},
            "shapes": [
                {"shape": name, "best_ms": best, "ms": timings.ms[number][taken[number]]}
                | {"config": dict(timings.configs[taken[number]])}
                for number, (name, best) in shapes
            ],
        }

    def _taken(self) -> dict[int, int]:
        """The config of each shape."""
        found = leaves(self.chosen.root)
        return {shape: leaf.config for leaf in found for shape in leaf.shapes}

    def report(self) -> str:
        """Losses by number of configs, and by shape."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        chosen, timings = self.chosen, self.timings
        count, listed = len(timings.shapes), len(list(leaves(chosen.root)))
        yield (
            f"{count} shapes, {chosen.count} configs, {listed} branches: "
            f"{100 * chosen.decided_loss:.2f} % behind the best of each shape (geometric mean)."
        )
        yield ""
        yield "configs   best of them   by sizes"
        for step in self.steps:
            mark = " <" if step is chosen else ""
            yield f"{step.count:7} {100 * step.loss:12.2f} % {100 * step.decided_loss:8.2f} %{mark}"
        yield ""
        yield "  best ms   chosen ms    loss   shape"
        lost = decided_logs(timings, chosen.root)
        taken = self._taken()
        for shape, (name, best) in enumerate(zip(timings.shapes, timings.best_ms)):
            loss, ms = 100 * geomean_loss([lost[shape]]), timings.ms[shape][taken[shape]]
            yield f"{best:9.4f} {ms:11.4f} {loss:6.1f} %   {name}"


def tune_shapes(
    kernel: Kernel[..., Any],
    arg_sets: Sequence[tuple[Any, ...]],
    make_tuner: MakeTuner,
    goal: Goal,
) -> ShapeDispatch:
    """Search a few configs that serve all sets of arguments, and decide by sizes between them."""
    if not arg_sets:
        raise ValueError("there are no arguments to tune for")
    if kernel.staged is not None:
        problem = "it has several launches"
        fix = "tune each set of arguments: kernel.autotune(args)"
        raise errors.AutotuneError(function=kernel.name, problem=problem, fix=fix)
    complete = [kernel.definition.arguments.complete(args) for args in arg_sets]
    bounds = [kernel.bind(args) for args in complete]
    searched = [_search(make_tuner, bound, args, goal) for bound, args in zip(bounds, complete)]
    pool = _pool(searched, goal.max_pool)
    rows = [
        _row(make_tuner, bound, args, pool, goal, found)
        for bound, args, found in zip(bounds, complete, searched)
    ]
    names = [describe_arguments(kernel.definition.parameters, args) for args in complete]
    kept = [position for position, row in enumerate(rows) if min(row, default=inf) < inf]
    if not kept:
        problem = "no config was measured on any shape"
        fix = "allow each search more time: a larger budget"
        raise errors.AutotuneError(function=kernel.name, problem=problem, fix=fix)
    own = [min((o.time_ms for o in found), default=inf) for found in searched]
    timings = Timings(
        tuple(names[i] for i in kept),
        tuple(pool),
        tuple(tuple(rows[i]) for i in kept),
        tuple(own[i] for i in kept),
    )
    features = find_features(kernel.definition.parameters, [complete[i] for i in kept])
    steps = make_steps(timings, features, goal)
    device = f"{bounds[0].target.model or bounds[0].target}"
    return ShapeDispatch(kernel, bounds[0].target, device, timings, steps, choose(steps, goal))


def make_steps(timings: Timings, features: Features, goal: Goal) -> tuple[Step, ...]:
    """The decision for each number of configs, up to the one from which more do not help."""
    steps: list[Step] = []
    for count in range(1, min(goal.max_configs, len(timings.configs)) + 1):
        chosen = choose_configs(timings, count)
        root = grow(timings, chosen, features, LEAVES_PER_CONFIG * count)
        loss = geomean_loss(cover_logs(timings, chosen))
        steps.append(Step(count, loss, geomean_loss(decided_logs(timings, root)), root))
        if loss == 0.0:
            break
    return tuple(steps)


def choose(steps: Sequence[Step], goal: Goal) -> Step:
    """The fewest configs that are near enough; if none are, what loses least."""
    near = [step for step in steps if step.decided_loss <= goal.within]
    return near[0] if near else min(steps, key=lambda step: step.decided_loss)


def find_features(parameters: Sequence[str], arg_sets: Sequence[tuple[Any, ...]]) -> Features:
    """Sizes that differ between sets of arguments; of those that are always equal the first."""
    found: dict[str, list[int]] = {}
    for position, parameter in enumerate(parameters):
        values = [args[position] for args in arg_sets]
        for name, column in _columns(parameter, values):
            if len(set(column)) > 1 and column not in found.values():
                found[name] = column
    return found


def _columns(parameter: str, values: Sequence[Any]) -> Iterator[tuple[str, list[int]]]:
    """Numbers that one argument has in all sets, and how to ask for them."""
    if all(type(value) is int for value in values):
        yield parameter, list(values)
    if not all(hasattr(value, "shape") for value in values):
        return
    if len({len(value.shape) for value in values}) == 1:
        for axis in range(len(values[0].shape)):
            yield f"{parameter}.size({axis})", [int(value.shape[axis]) for value in values]
    yield f"{parameter}.numel()", [int(value.numel()) for value in values]


def _search(make_tuner: MakeTuner, bound: Any, args: tuple[Any, ...], goal: Goal) -> list[Outcome]:
    """Everything that a search for one set of arguments has timed, the fastest first."""
    return _run(make_tuner, bound, args, TuneRequest(True, goal.budget_s))


def _run(
    make_tuner: MakeTuner, bound: Any, args: tuple[Any, ...], request: TuneRequest
) -> list[Outcome]:
    history = History()
    make_tuner([history]).tune(bound, args, request)
    timed = [trial.outcome for trial in history.timed]
    return sorted(timed, key=lambda outcome: outcome.time_ms)


def _pool(searched: Sequence[Sequence[Outcome]], most: int) -> list[Config]:
    """The fastest of each shape, then the second of each, and so on."""
    found: dict[Config, None] = {}
    for rank in range(max(map(len, searched), default=0)):
        for outcomes in searched:
            if rank < len(outcomes) and len(found) < most:
                found.setdefault(outcomes[rank].config)
    return list(found)


def _row(
    make_tuner: MakeTuner,
    bound: Any,
    args: tuple[Any, ...],
    pool: Sequence[Config],
    goal: Goal,
    known: Sequence[Outcome],
) -> list[float]:
    """The time of every config of the pool on one set of arguments; one that fails has none."""
    normal = [_fitted(bound, config) for config in pool]
    listed = list(dict.fromkeys(config for config in normal if config is not None))
    found = list(known)
    if len(listed) > 1:
        keywords = {"method": "FiniteSearch", "configs": listed}
        found += _run(make_tuner, bound, args, TuneRequest(True, goal.budget_s, keywords))
    times: dict[Config, float] = {}
    for outcome in found:
        # Of two times the shorter: what disturbs a measurement makes it longer.
        times[outcome.config] = min(outcome.time_ms, times.get(outcome.config, inf))
    return [inf if config is None else times.get(config, inf) for config in normal]


def _fitted(bound: Any, config: Config) -> Config | None:
    """The config in full; None where this shape does not take it."""
    try:
        return bound.config_spec.normalize(config)
    except errors.InvalidConfig:
        return None
