"""The launch arguments of a program as plain values: tensors are views of numbered storages."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

Number = int | float | bool
ALIGNMENT = 512
"""Of what torch allocates on a GPU."""


@dataclass(frozen=True)
class TensorRef:
    """A tensor of a workload: a view of one of its storages."""

    storage: int
    dtype: str
    """As torch spells it without the module: ``bfloat16``."""
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    """In elements."""


Argument = TensorRef | Number


@dataclass(frozen=True)
class Binding:
    """The launch arguments of one artifact (or of the IR function), by parameter name."""

    arguments: tuple[tuple[str, Argument], ...]
    extra_storages: Path | None = None
    """Storages that only this candidate has (host code that looks at the Config made them); they
    are numbered after those of the workload."""
