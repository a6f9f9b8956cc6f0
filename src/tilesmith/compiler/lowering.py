"""What a pipeline is made of: passes, stages, the state they hand on; and how it is run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from logging import INFO
from typing import TypeVar

from tilesmith.artifacts import Artifact
from tilesmith.backends.interface import Backend
from tilesmith.diagnostics.catalogue import InternalError
from tilesmith.diagnostics.kernel_warnings import WarningLog
from tilesmith.diagnostics.logs import Stopwatch, topic_log
from tilesmith.ir.function import Function
from tilesmith.ir.verifier import verify_function
from tilesmith.schedule.config import Config
from tilesmith.schedule.schedule import Schedule
from tilesmith.schedule.spec import ConfigSpec
from tilesmith.settings import Settings

LOG = topic_log("compile")
Known = TypeVar("Known")


@dataclass(frozen=True)
class Lowering:
    """A function on its way from trace to code, and what is known of it so far.

    Passes take their parameters from here. What a stage does not know yet is None or empty.
    """

    function: Function
    settings: Settings = field(default_factory=Settings)
    log: WarningLog = field(default_factory=WarningLog)
    config: Config = field(default_factory=Config)
    """Normalised; of the structure that ``spec`` is about."""
    spec: ConfigSpec | None = None
    symbols: Mapping[str, int] = field(default_factory=dict[str, int])
    """Sizes of blocks and sizes; passes that make a block add its size."""
    backend: Backend | None = None
    schedule: Schedule | None = None
    artifact: Artifact | None = None

    @classmethod
    def of_config(
        cls, spec: ConfigSpec, config: Config, settings: Settings, backend: Backend
    ) -> Lowering:
        """The start of ``SCHEDULED``: one form of a function under a normalised config of it."""
        symbols = spec.sizes(config).symbols
        return cls(
            spec.function, settings, config=config, spec=spec, symbols=symbols, backend=backend
        )


def known(value: Known | None) -> Known:
    """What an earlier stage has left in the state."""
    if value is None:
        raise InternalError(problem="a stage of the pipeline runs before one that it needs")
    return value


@dataclass(frozen=True)
class Pass:
    """A named step. It hands on the same function object when it changed nothing."""

    name: str
    reason: str
    """Why it runs at all, and why here: one sentence."""
    run: Callable[[Lowering], Lowering]
    is_cleanup: bool = False
    """Whether it runs only after a pass of its stage that changed the function."""


@dataclass(frozen=True)
class Stage:
    """Passes that run one after the other for the same reason, and equally often."""

    name: str
    reason: str
    passes: tuple[Pass, ...]


Observer = Callable[[Stage, Pass, Function, Function], None]
"""Called after each pass with the function before and after it."""


def step(run: Callable[[Lowering], Lowering], reason: str) -> Pass:
    """A pass that takes parameters from the state; it is named after its own function."""
    return Pass(run.__name__.removeprefix("_"), reason, run)


def rewrite(run: Callable[[Function], Function], reason: str, *, cleanup: bool = False) -> Pass:
    """A pass that needs nothing but the function; it is named after its own function."""

    def apply(state: Lowering) -> Lowering:
        after = run(state.function)
        return state if after is state.function else replace(state, function=after)

    return Pass(run.__name__, reason, apply, cleanup)


def run_stages(
    state: Lowering, stages: Iterable[Stage], observers: Iterable[Observer] = ()
) -> Lowering:
    """Run all passes of the stages in order, with observers after each."""
    watching = (*observers, *((verify_pass,) if is_verified(state.settings) else ()))
    is_timed, of_passes, of_stages = LOG.isEnabledFor(INFO), Stopwatch(), Stopwatch()
    for stage in stages:
        first = state.function
        for step in stage.passes:
            if step.is_cleanup and state.function is first:
                continue
            before, state = state.function, step.run(state)
            if is_timed:
                effect = ", nothing to do" if before is state.function else ""
                LOG.debug("%s: pass %s %s%s", before.name, step.name, of_passes.lap(), effect)
            for observe in watching:
                observe(stage, step, before, state.function)
        if is_timed:
            LOG.info("%s: stage %s %s", state.function.name, stage.name, of_stages.lap())
    return state


def is_verified(settings: Settings) -> bool:
    """Whether the IR is looked at on its way; tests do, and kernels under ``check=True``."""
    return settings.verify_passes or settings.check or settings.debug_dtype_asserts


def verify_pass(stage: Stage, step: Pass, before: Function, after: Function) -> None:
    """An observer: raise ``InternalError`` with the pass's name if it broke the IR."""
    if after is before:
        return
    try:
        verify_function(after)
    except InternalError as error:
        problem = f"pass {step.name} of stage {stage.name} left {error.details['problem']}"
        raise InternalError(problem=problem, loc=error.loc) from None
