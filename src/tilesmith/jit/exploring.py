"""``bound.explore()``; the explorer itself loads at the first call, as most programs never do."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from tilesmith.jit.compiled_kernel import ConfigLike
from tilesmith.jit.visible.description import DescribedBoundKernel

EXPLORER = "tilesmith.explore.explorer"


class ExplorableKernel(DescribedBoundKernel):
    """A bound kernel that makes a page about itself."""

    def explore(
        self,
        config: ConfigLike = None,
        *,
        beside: ConfigLike = None,
        measured_ms: float | None = None,
    ) -> Any:
        """A page from source to machine code: shown by notebooks, and written by ``save``.

        Args:
            config: what to look at; by default the config that calls use.
            beside: a second config to compare it with.
            measured_ms: a time of the first, to draw beside what the model expects.

        Example:
            ``kernel.bind((x,)).explore().save("page.html")``
        """
        made = importlib.import_module(EXPLORER)
        return made.explore(self, config, beside, measured_ms)


class ExplorableStages:
    """Several bound kernels, one for each launch, that make a page about themselves."""

    @property
    def stages(self) -> Sequence[Any]:
        """Of each launch; None for one that host code does not come to."""
        raise NotImplementedError

    def split(self, config: ConfigLike, number: int) -> ConfigLike:
        """A launch's part of a config; None: what it chooses itself."""
        raise NotImplementedError

    def explore(
        self,
        config: ConfigLike = None,
        *,
        beside: ConfigLike = None,
        measured_ms: float | None = None,
    ) -> Any:
        """A page about each launch that host code comes to, chosen at its top.

        Args:
            config: what to look at, for all launches; by default the configs that calls use.
            beside: a second config to compare it with.
            measured_ms: of a single launch only.
        """
        if measured_ms is not None:
            raise ValueError(f"a time of all {len(self.stages)} launches belongs to none of them")
        made = importlib.import_module(EXPLORER)
        configs = (config, beside)
        launches = [
            made.explore(bound, *(None if c is None else self.split(c, number) for c in configs))
            for number, bound in enumerate(self.stages)
            if bound is not None
        ]
        return made.Explorer(*(part for launch in launches for part in launch.launches))
