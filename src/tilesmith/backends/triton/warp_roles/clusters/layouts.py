"""Layouts of tiles that two programs share."""

from __future__ import annotations

from collections.abc import Sequence


def spread(layout: str, basis: Sequence[int]) -> str:
    """A layout of Gluon's over a pair of programs.

    ``basis`` has a 1 for the axis of which each program has one half; without it, both have all.
    """
    return f"{layout.removesuffix(')')}, cga_layout={[[*basis]]})"
