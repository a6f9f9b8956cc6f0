"""Products whose tiles one program for each group would walk: how many programs share a group."""

from __future__ import annotations

from tilesmith.analysis.spread_loops import SHARES, shares_of
from tilesmith.schedule.rules import TargetedKernel

MOST_GROUPS_PER_CORE = 16
"""More are even enough for every core."""
PROGRAMS = 4
"""That share the rows of a group."""


def share_blocks(kernel: TargetedKernel) -> dict[str, int]:
    """The block of the programs that share a group, where there is one."""
    shares = shares_of(kernel.outline.function)
    return {} if shares is None else {shares: SHARES // PROGRAMS}
