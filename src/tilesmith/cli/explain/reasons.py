"""Why a config is the default although the time model predicts less time for another.

A heuristic names the default, and the model ranks the others. Each heuristic has a sentence here
that says what its choice rests on; the parts of the two predictions say what the model counts on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilesmith.diagnostics.wording import ms_text, percent_text
from tilesmith.schedule.model.estimates import Prediction
from tilesmith.schedule.spec import RankedConfig
from tilesmith.store.config_text import config_text

HEURISTIC = "heuristic: "
GROUNDS = {
    "reduction": "a program gets one long row, or as many short ones as keep it busy, which was "
    "fastest where rows were measured",
    "pointwise": "a program gets a long run of memory, and each core or multiprocessor several "
    "programs, which was fastest where elementwise kernels were measured",
    "matmul": "the tile is the best of a closer model, of products alone, with constants from "
    "measured products",
    "attention": "both products of the loop share one tile, whose size was measured",
    "matmul with reduction epilogue": "the whole row of the product stays where it is made, so the "
    "tile is as wide as the row",
    "attention with more products": "all accumulators live at once, and the tile is one with which "
    "no register was spilled",
    "attention of ragged sequences": "memory knows how long each sequence is, so tiles are those "
    "of short ones",
    "product of several loops": "one tile is summed up by several loops, and all share its size",
    "rows that programs share": "a long row is shared by as many programs as the device runs at "
    "once, which was fastest where few long rows were measured",
    "product whose programs exchange sums": "programs that share a row must all run at once, which "
    "bounds the number of tiles",
    "product of a panel, then its rows": "a panel of rows is made and then reduced by the same "
    "program",
    "product, then its rows": "the product has the tile that it would have alone, and its rows a "
    "launch phase of their own",
    "each loop": "each loop has its own tile, and the loop with the most work names the warps",
    "warp roles": "the order is that of times measured on an H200",
    "anything": "no rule is about such kernels: each block has a middle size",
}
"""What the choice of each heuristic rests on, by its name."""
_PARTS = {"compute_ms": "arithmetic", "memory_ms": "memory", "latency_ms": "waiting"}
WORTH_TELLING = 0.98
"""Predictions closer than this are the same."""


def ground_of(reason: str) -> str:
    """What the choice of a heuristic rests on; "" where the model chose."""
    name = reason.removeprefix(HEURISTIC).partition(", ")[0]
    return GROUNDS.get(name, "") if reason.startswith(HEURISTIC) else ""


def find_rival(first: RankedConfig, others: Sequence[RankedConfig]) -> RankedConfig | None:
    """The config of which less time is predicted than of the default, the fastest of these."""
    limit = WORTH_TELLING * first.predicted.total_ms
    faster = [item for item in others if item.predicted.total_ms < limit]
    return min(faster, key=lambda item: item.predicted.total_ms, default=None)


def rival_lines(first: RankedConfig, rival: RankedConfig) -> Iterator[str]:
    """Why the default stands before a config that is predicted to be faster."""
    share = percent_text(1 - rival.predicted.total_ms / first.predicted.total_ms)
    yield f"over       {config_text(rival.config)}, predicted {share} faster"
    yield f"           the model counts on {gain_text(first.predicted, rival.predicted)}"
    ground = ground_of(first.reason)
    if ground:
        yield f"           but here {ground};"
        yield "           measured times come before predicted ones. `tilesmith tune` measures both"


def gain_text(slow: Prediction, fast: Prediction) -> str:
    """The part of the time that differs most between two predictions."""
    gains = {name: getattr(slow, name) - getattr(fast, name) for name in _PARTS}
    name = max(gains, key=lambda name: gains[name])
    times = ms_text(getattr(fast, name)), ms_text(getattr(slow, name))
    return f"less {_PARTS[name]}: {times[0]} instead of {times[1]}"
