"""Tuning by hand: search methods, tuning of other functions, and fragments for tunables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from tilesmith.jit.bound_kernel import BoundKernel
from tilesmith.schedule.config import Config
from tilesmith.schedule.space.fragments import (
    BooleanFragment,
    EnumFragment,
    IntegerFragment,
    ListOf,
    PermutationFragment,
    PowerOfTwoFragment,
)
from tilesmith.tune.external import autotune


class BoundSearch:
    """A search by one method; the options are the method's, and settings of the search."""

    method: ClassVar[str] = ""

    def __init__(self, kernel: BoundKernel, args: Sequence[Any], **options: Any) -> None:
        self.kernel = kernel
        self.args = tuple(args)
        self.options = options

    def autotune(self, *, skip_cache: bool = False) -> Config:
        """Search, use the winner from now on and return it."""
        options: dict[str, Any] = {**self.options, "method": self.method}
        if skip_cache:
            options["skip_cache"] = True
        return self.kernel.autotune(self.args, **options)


class ModelFirstSearch(BoundSearch):
    """The device model's best guesses, then local search."""

    method = "ModelFirstSearch"


class PatternSearch(BoundSearch):
    """Hill climbing from several places."""

    method = "PatternSearch"


class DifferentialEvolutionSearch(BoundSearch):
    """A population whose members are recombined."""

    method = "DifferentialEvolutionSearch"


class RandomSearch(BoundSearch):
    """Random Configs."""

    method = "RandomSearch"


class FiniteSearch(BoundSearch):
    """The Configs of ``configs=[...]``."""

    method = "FiniteSearch"


__all__ = [
    "BooleanFragment",
    "DifferentialEvolutionSearch",
    "EnumFragment",
    "FiniteSearch",
    "IntegerFragment",
    "ListOf",
    "ModelFirstSearch",
    "PatternSearch",
    "PermutationFragment",
    "PowerOfTwoFragment",
    "RandomSearch",
    "autotune",
]
