"""Function in, Artifact out: passes, schedule, emission. No device, no launch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tilesmith.artifacts import Artifact
from tilesmith.backends.cpu.backend import emit as emit_native
from tilesmith.backends.triton.backend import emit as emit_triton
from tilesmith.ir.function import Function
from tilesmith.passes.pipeline import Observer, run_pipeline
from tilesmith.passes.standard import STANDARD
from tilesmith.schedule.config import Config
from tilesmith.schedule.lower import schedule_function
from tilesmith.schedule.schedule import Schedule
from tilesmith.schedule.spec import ConfigSpec
from tilesmith.settings import Settings


def optimise(function: Function, observers: Iterable[Observer] = ()) -> Function:
    """The config-independent passes, once per trace."""
    return run_pipeline(function, STANDARD, observers)


def compile_to_triton(spec: ConfigSpec, config: Config, settings: Settings) -> Artifact:
    """Triton source and launch contract for one normalised config."""
    return emit_triton(*_schedule(spec, config, settings))


def compile_to_native(spec: ConfigSpec, config: Config, settings: Settings) -> Artifact:
    """LLVM IR, loop nest and launch contract for one normalised config, on a CPU target."""
    return emit_native(*_schedule(spec, config, settings))


def _schedule(spec: ConfigSpec, config: Config, settings: Settings) -> tuple[Function, Schedule]:
    spec, config = spec.of(config)
    function, schedule = schedule_function(spec.function, spec, config)
    options = {
        **schedule.backend_options,
        "fast_math": settings.fast_math,
        "output_origin_lines": settings.output_origin_lines,
    }
    return function, replace(
        schedule, backend_options=options, reserved_sms=settings.persistent_reserved_sms
    )
