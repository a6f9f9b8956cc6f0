"""Every backend, listed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilesmith.artifacts import Artifact
from tilesmith.backends.cpu import backend as cpu
from tilesmith.backends.interface import Backend
from tilesmith.backends.reference import backend as reference
from tilesmith.backends.triton import backend as triton
from tilesmith.ir.function import Function
from tilesmith.schedule.schedule import Schedule


@dataclass(frozen=True)
class NamedBackend:
    """A backend made of a name and an emit function."""

    name: str
    emit: Callable[[Function, Schedule], Artifact]


BACKENDS: tuple[Backend, ...] = (
    NamedBackend(triton.NAME, triton.emit),
    NamedBackend(cpu.NAME, cpu.emit),
    NamedBackend(reference.NAME, reference.emit),
)


def find_backend(name: str) -> Backend:
    """The backend of that name.

    Example:
        >>> find_backend("triton").name
        'triton'
    """
    for backend in BACKENDS:
        if backend.name == name:
            return backend
    known = ", ".join(backend.name for backend in BACKENDS)
    raise ValueError(f"unknown backend {name!r}: expected one of {known}")
