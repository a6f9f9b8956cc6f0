"""Search methods as objects over a bound kernel: ``PatternSearch(bound, args).autotune()``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from tilesmith.jit.bound_kernel import BoundKernel
from tilesmith.schedule.config import Config


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
