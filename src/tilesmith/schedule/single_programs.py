"""Blocks that must cover their axis, so that no two programs add floats to one element.

A block has a lower bound; here it is raised where the results would otherwise depend on the order
in which programs run. What no block size can mend stays as it is, and is found by its Config.
"""

from __future__ import annotations

from dataclasses import replace

from tilesmith.analysis.run_order import SharedUpdate, find_shared_updates
from tilesmith.ir.function import Block, Function
from tilesmith.schedule.config import Config
from tilesmith.schedule.schedule import next_power_of_2
from tilesmith.schedule.space.sizes import MAX_SEARCHED_BLOCK


def require_single_programs(function: Function) -> Function:
    """The function with blocks that must be as large as their axis, where that helps."""
    shared = {axis for update in find_shared_updates(function, {}) for axis in update.axes}
    whole = {b.name: _whole(b) for b in function.blocks if b.name in shared and _can_cover(b)}
    if find_shared_updates(function, whole):
        return function
    blocks = [replace(b, low=whole.get(b.name, b.low)) for b in function.blocks]
    return replace(function, blocks=tuple(blocks)) if whole else function


def find_order_dependence(function: Function, config: Config) -> SharedUpdate | None:
    """The first update whose outcome depends on the order of programs under a Config."""
    blocks = config.get("block_sizes", [])
    slots = {b.name: b.slot for b in function.blocks if b.slot is not None}
    sizes = {name: blocks[slot] for name, slot in slots.items() if slot < len(blocks)}
    return next(iter(find_shared_updates(function, sizes)), None)


def _whole(block: Block) -> int:
    return next_power_of_2(block.extent or 1)


def _can_cover(block: Block) -> bool:
    if block.fixed is not None or block.extent is None:
        return False
    return _whole(block) <= min(MAX_SEARCHED_BLOCK, block.high or MAX_SEARCHED_BLOCK)
