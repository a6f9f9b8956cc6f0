"""What runs a kernel's device code: decided once per specialization, from settings and target."""

from __future__ import annotations

from enum import Enum

from tilesmith.diagnostics import errors
from tilesmith.settings import RefMode, Settings
from tilesmith.targets import Target


class Runner(Enum):
    """A way to run device code."""

    TRITON = "triton"
    NATIVE = "cpu"
    REFERENCE = "reference"
    CHECKED = "checked"
    """The reference interpreter, with every access checked for bounds and races."""


COMPILING = (Runner.TRITON, Runner.NATIVE)
"""Those for which Configs make a difference in time."""


def is_interpreted(settings: Settings) -> bool:
    """Whether the reference interpreter runs the kernel, on whatever target."""
    is_reference = settings.backend == "reference" or settings.ref_mode is RefMode.EAGER
    return settings.check or is_reference


def check_modes(settings: Settings) -> None:
    """Raise if the settings exclude each other, or ask for a backend that is not there."""
    if settings.backend == "cute":
        raise errors.CuteBackendUnavailable
    if settings.backend == "tileir":
        raise errors.MissingEnableTile
    if settings.ref_mode is not RefMode.EAGER:
        return
    if settings.triton_interpret:
        raise errors.IncompatibleInterpretModes
    if settings.print_output_code:
        raise errors.RefEagerModeCodePrintError


def choose_runner(settings: Settings, target: Target) -> Runner:
    """The runner that the settings ask for on a target."""
    if settings.check:
        return Runner.CHECKED
    if is_interpreted(settings):
        return Runner.REFERENCE
    natural = Runner.TRITON if target.is_gpu else Runner.NATIVE
    if settings.backend not in ("auto", natural.value):
        raise errors.BackendUnsupported(
            operation=f"running on {target}", backend=settings.backend, fix='use backend="auto"'
        )
    return natural
