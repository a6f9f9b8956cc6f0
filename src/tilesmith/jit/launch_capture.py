"""What host code hands over at its launch point, kept instead of launched.

The tuner works on it: candidates are built and run by other processes, never by this one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tilesmith.jit.variants import Variant
from tilesmith.runtime.arguments import compile_guard, compile_reader


class LaunchReached(BaseException):
    """Ends a run of host code at the launch point."""

    def __init__(self, values: tuple[Any, ...]) -> None:
        super().__init__()
        self.values = values


def make_stop(device: torch.device) -> Callable[..., None]:
    """A launcher that launches nothing; host code makes its tensors on the device."""

    def stop(*values: Any) -> None:
        raise LaunchReached(values)

    stop.device = device  # type: ignore[attr-defined]
    return stop


@dataclass(frozen=True)
class CapturedLaunch:
    """One launch that did not happen."""

    variant: Variant
    """The trace that these values fit."""
    names: tuple[str, ...]
    values: tuple[Any, ...]
    """What host code computed, in the order of ``names``."""
    arguments: tuple[Any, ...]
    """The kernel's arguments; copies where host code may change them."""
    device: torch.device

    def read(self, sources: Sequence[str]) -> tuple[Any, ...]:
        """The values of launch expressions such as ``x`` or ``x.size(0)``."""
        return compile_reader(self.names, sources, self.variant.trace.constants)(*self.values)

    @property
    def fits_variant(self) -> bool:
        """Whether everything that the trace took for constant is as it was."""
        trace = self.variant.trace
        guard = compile_guard(self.names, trace.guards, trace.constants)
        return guard is None or guard(*self.values)

    @property
    def depends_on_config(self) -> bool:
        """Whether host code looks at block sizes or tunables, so that Configs have captures."""
        session = self.variant.trace.session
        return bool(session.observed_slots or session.tunable_fragments)
