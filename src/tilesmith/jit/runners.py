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


def choose_runner(settings: Settings, target: Target) -> Runner:
    """The runner that the settings ask for on a target."""
    if settings.check:
        return Runner.CHECKED
    if settings.backend == "reference" or settings.ref_mode is RefMode.EAGER:
        return Runner.REFERENCE
    natural = Runner.TRITON if target.is_gpu else Runner.NATIVE
    if settings.backend not in ("auto", natural.value):
        raise errors.BackendUnsupported(
            operation=f"running on {target}", backend=settings.backend, fix='use backend="auto"'
        )
    return natural
