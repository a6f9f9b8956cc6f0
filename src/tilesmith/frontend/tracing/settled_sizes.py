"""Sizes of blocks that are the same wherever a trace holds."""

from __future__ import annotations

from tilesmith.frontend.tracing.host_session import HostSession
from tilesmith.frontend.tracing.tracer import current_tracer
from tilesmith.ir.types import Dim


def settled_size(name: str | None) -> int | None:
    """The size of a block that is fixed, or that host code has looked at; None of others."""
    tracer = current_tracer("shape")
    block = tracer.find_block(name)
    if block is None or block.slot not in tracer.host.observed_slots:
        return None if block is None else block.fixed
    return tracer.host.block_size(block.slot)


def is_only_tile(tile: Dim, size: Dim) -> bool:
    """Whether one tile of a fixed block size holds a whole constant size."""
    block = current_tracer("shape").find_block(tile.symbol or "")
    fixed = 0 if block is None else block.fixed or 0
    return block is not None and block.extent == size.constant and fixed >= (size.constant or 0) > 0


def is_whole_block(block: Dim, size: Dim) -> bool:
    """Whether a block is no more than a plain size: outside its loops no lane is masked."""
    is_masked = block.symbol in current_tracer("shape").bound_blocks()
    return not is_masked and settled_size(block.symbol) == size.constant is not None


def larger_blocks(session: HostSession) -> dict[int, int]:
    """The largest sizes of blocks, where host code has looked at sizes that nobody chose.

    A host tensor as wide as a block may be too small with one size and large enough with another.
    """
    if session.block_sizes or not session.observed_slots:
        return {}
    return {block.slot: block.high for block in session.registered}
