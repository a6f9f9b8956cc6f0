"""What runs a kernel's device code: decided once per specialization, from settings and target."""

from __future__ import annotations

from dataclasses import dataclass

import tilesmith.exc as errors
from tilesmith.backends.interface import Backend, BackendTable
from tilesmith.backends.reference.backend import REFERENCE_BACKEND
from tilesmith.settings import RefMode, Settings, refuse_at_bind
from tilesmith.targets import Target


@dataclass(frozen=True)
class Runner:
    """A way to run device code: a backend, or the interpreter with checks."""

    backend: Backend
    is_checked: bool = False
    """Whether every access is checked for bounds and races."""

    @property
    def is_compiling(self) -> bool:
        """Whether Configs make a difference in time."""
        return self.backend is not REFERENCE_BACKEND


REFERENCE = Runner(REFERENCE_BACKEND)
CHECKED = Runner(REFERENCE_BACKEND, is_checked=True)


def is_interpreted(settings: Settings) -> bool:
    """Whether the reference interpreter runs the kernel, on whatever target."""
    is_reference = settings.backend == "reference" or settings.ref_mode is RefMode.EAGER
    # Triton's own interpreter hands back no compiled kernel to launch; ours stops at breakpoints.
    return settings.check or is_reference or settings.triton_interpret


def check_modes(settings: Settings) -> None:
    """Raise if the settings exclude each other, or ask for a backend that is not there."""
    refuse_at_bind(settings)
    if settings.backend == "cute":
        raise errors.CuteBackendUnavailable
    if settings.backend == "tileir":
        raise errors.MissingEnableTile
    if settings.backend in ("pallas", "metal"):
        fix = 'use backend="triton" or backend="auto"'
        raise errors.BackendUnsupported(operation="making code", backend=settings.backend, fix=fix)
    is_eager = settings.ref_mode is RefMode.EAGER
    if is_eager and settings.triton_interpret:
        raise errors.IncompatibleInterpretModes
    if is_eager and settings.print_output_code:
        raise errors.RefEagerModeCodePrintError


def choose_runner(settings: Settings, target: Target, backends: BackendTable) -> Runner:
    """The runner that the settings ask for on a target."""
    if settings.check:
        return CHECKED
    if is_interpreted(settings):
        return REFERENCE
    natural = backends.of(target)
    if settings.backend not in ("auto", natural.name):
        raise errors.BackendUnsupported(
            operation=f"running on {target}", backend=settings.backend, fix='use backend="auto"'
        )
    return Runner(natural)
