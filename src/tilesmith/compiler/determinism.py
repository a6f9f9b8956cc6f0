"""``deterministic=True``: the same bits every time, however programs are ordered.

A block has a lower bound; it is raised where results would otherwise depend on the order in which
programs run. Configs under which programs still add floats to one element, or do to it what else
depends on their order, are refused; where the source itself wants that, an error says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice, product
from typing import Any

from tilesmith.analysis.run_order import SharedUpdate, find_shared_updates
from tilesmith.exc import NondeterministicKernel
from tilesmith.ir.function import Block, Function
from tilesmith.schedule.config import Config
from tilesmith.schedule.schedule import next_power_of_2
from tilesmith.schedule.space.fragments import Fragment
from tilesmith.schedule.space.sizes import MAX_SEARCHED_BLOCK
from tilesmith.settings import Settings

MAX_TRIED = 32
"""Values of tunables that are tried for a default; each may be a new trace."""
FindUpdate = Callable[[Config], "SharedUpdate | None"]


def check_deterministic(function: Function, config: Config, settings: Settings) -> None:
    """Raise if it is asked for, and results depend on the order of programs under the Config."""
    update = find_order_dependence(function, config) if settings.deterministic else None
    if update is not None:
        deed, harm = update.hazard.value
        raise NondeterministicKernel(
            deed=deed, tensor=update.tensor, harm=harm, meeting=update.meeting, loc=update.op.loc
        )


def choose_deterministic(
    config: Config, tunables: dict[str, Fragment], find_update: FindUpdate
) -> Config:
    """The Config, with other values of the kernel's own tunables if that makes it deterministic."""
    if find_update(config) is None:
        return config
    for values in _combinations(tunables):
        other = config.updated(**values)
        if find_update(other) is None:
            return other
    return config


def _combinations(tunables: dict[str, Fragment]) -> Iterator[dict[str, Any]]:
    combinations = product(*map(_values, tunables.values()))
    return (dict(zip(tunables, values)) for values in islice(combinations, MAX_TRIED))


def _values(fragment: Fragment) -> list[Any]:
    """The default and what can be reached from it, step by step."""
    found = [fragment.default]
    for value in found:
        found += [other for other in fragment.neighbours(value) if other not in found]
        if len(found) >= MAX_TRIED:
            break
    return found


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
