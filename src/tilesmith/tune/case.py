"""What a search measures candidates on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilesmith.jit.bound_kernel import BoundKernel


@dataclass(frozen=True)
class Case:
    """A bound kernel with the arguments to measure it on."""

    bound: BoundKernel
    args: tuple[Any, ...]
