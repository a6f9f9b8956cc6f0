"""What a backend is: one value that answers every question about it.

Nothing else in the package asks what kind of device a target is: it asks the backend of the target.
``launch_parameter`` says what a launcher must know of a parameter of the IR.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilesmith.artifacts import Artifact, LaunchParameter
from tilesmith.ir.function import Function, Parameter
from tilesmith.ir.operation import Operation
from tilesmith.ir.types import TensorType
from tilesmith.schedule.rules import ScheduleRules
from tilesmith.schedule.schedule import Schedule
from tilesmith.targets import Target


def _unchanged(function: Function, _schedule: Schedule) -> Function:
    return function


@dataclass(frozen=True)
class TuningNeeds:
    """What a search for Configs must know of a backend."""

    builds_beside_runs: bool = False
    """Whether candidates may be built while one is timed: not where both need the same cores."""
    builds_without_torch: bool = False
    """Whether processes that build may postpone the import of torch, which takes seconds."""
    preloads: tuple[str, ...] = ()
    """Modules that processes which build import, and functions they call, before their jobs."""


@dataclass(frozen=True)
class Backend:
    """Makes code for its targets. It needs no device and knows no other backend."""

    name: str
    """What ``backend=`` in the settings calls it."""
    target_kinds: tuple[str, ...]
    """The targets whose kernels it compiles unless another backend is asked for."""
    device_types: tuple[str, ...]
    """The torch devices whose tensors its code can use."""
    rules: Callable[[Target], ScheduleRules]
    """What Configs may say on a target, what they cost, and which to try first."""
    emit: Callable[[Function, Schedule], Artifact]
    """From a function and how it is run to code with its launch contract."""
    refused_ops: tuple[type[Operation], ...] = ()
    """Ops that it has an error for instead of code."""
    prepare: Callable[[Function, Schedule], Function] = _unchanged
    """The last pass before ``emit``, where it needs one of its own."""
    crops_tiles: bool = False
    """Whether its tiles have no lanes beyond the end of their loop."""
    forms: tuple[str, ...] = ()
    """In which its code can be shown; the first is the usual one."""
    builds_at_launch: bool = False
    """Whether code that cannot be built shows only at its first launch."""
    launch: Callable[[Artifact], Callable[..., None]] | None = None
    """From an artifact to a function of its parameters' values; None: ``jit`` has its launcher."""
    tuning: TuningNeeds = TuningNeeds()


@dataclass(frozen=True)
class BackendTable:
    """Backends, found by target or by name."""

    backends: tuple[Backend, ...]

    def of(self, target: Target) -> Backend:
        """The backend that compiles for a target."""
        for backend in self.backends:
            if target.kind in backend.target_kinds:
                return backend
        raise ValueError(f"no backend compiles for {target}")

    def named(self, name: str) -> Backend:
        """The backend of that name."""
        for backend in self.backends:
            if backend.name == name:
                return backend
        known = ", ".join(backend.name for backend in self.backends)
        raise ValueError(f"unknown backend {name!r}: expected one of {known}")

    def rules(self, target: Target) -> ScheduleRules:
        """The schedule rules for a target."""
        return self.of(target).rules(target)

    @property
    def forms(self) -> tuple[str, ...]:
        """Of code for any target."""
        return tuple(form for backend in self.backends for form in backend.forms)

    def with_backend(self, backend: Backend) -> BackendTable:
        """The same with one more, which comes before those that serve the same targets."""
        return BackendTable((backend, *self.backends))


def launch_parameter(parameter: Parameter, name: str = "") -> LaunchParameter:
    """The launcher's view of a parameter; ``name`` is what emitted code calls it."""
    kind = parameter.value.type
    name = name or parameter.value.name
    return LaunchParameter(name, parameter.source, isinstance(kind, TensorType), kind.dtype.name)
