"""Single stages of the pipeline, for tests of what they make."""

from __future__ import annotations

from dataclasses import replace

from tilesmith.artifacts import Artifact
from tilesmith.backends.table import BACKENDS
from tilesmith.backends.triton.backend import emit
from tilesmith.compiler.lowering import Lowering, known, run_stages
from tilesmith.compiler.pipeline import EMIT, SCHEDULED, STANDARD, STRUCTURE, TARGET
from tilesmith.ir.function import Function
from tilesmith.passes.split_rows import Form
from tilesmith.schedule.config import Config
from tilesmith.schedule.schedule import Schedule
from tilesmith.schedule.spec import ConfigSpec
from tilesmith.settings import Settings


def run_standard(function: Function) -> Function:
    """The function after the standard passes."""
    return run_stages(Lowering(function), [STANDARD]).function


def split_function(function: Function, form: Form) -> Function | None:
    """The function in another structure; None if it has none."""
    state = Lowering(function, config=Config(structure=form.value))
    made = run_stages(state, [STRUCTURE]).function
    return None if made is function else made


def schedule_function(
    function: Function, spec: ConfigSpec, config: Config, reserved_sms: int = 0
) -> tuple[Function, Schedule]:
    """A function as a config of its specification wants it, and its schedule."""
    settings = Settings(persistent_reserved_sms=reserved_sms)
    normal = spec.normalize(config)
    backend = BACKENDS.of(spec.target)
    start = replace(Lowering.of_config(spec, normal, settings, backend), function=function)
    state = run_stages(start, [SCHEDULED])
    return state.function, known(state.schedule)


def for_target(function: Function, schedule: Schedule) -> Function:
    """The function as backends get it."""
    backend = BACKENDS.of(schedule.target)
    return run_stages(Lowering(function, backend=backend, schedule=schedule), [TARGET]).function


def emit_triton(
    function: Function, schedule: Schedule, triton_version: tuple[int, int] | None = None
) -> Artifact:
    """The Triton module of a function after its other stages."""
    return emit(for_target(function, schedule), schedule, triton_version)


def compile_config(spec: ConfigSpec, config: Config) -> Artifact:
    """The code of one config in the language of the specification's target."""
    backend = BACKENDS.of(spec.target)
    state = Lowering.of_config(spec, spec.normalize(config), Settings(), backend)
    return known(run_stages(state, [SCHEDULED, TARGET, EMIT]).artifact)
