"""``bound.explore()``; the explorer itself loads at the first call, as most programs never do."""

from __future__ import annotations

import importlib
from typing import Any

from tilesmith.jit.compiled_kernel import ConfigLike
from tilesmith.jit.visible.description import DescribedBoundKernel


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
        made = importlib.import_module("tilesmith.explore.explorer")
        return made.explore(self, config, beside, measured_ms)
