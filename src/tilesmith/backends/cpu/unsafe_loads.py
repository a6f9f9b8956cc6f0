"""Loads that must be done where they stand, because memory changes before their value is used.

All other loads are virtual: each loop nest reads the elements it needs when it needs them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilesmith.analysis.memory_conflicts import Access, find_accesses, is_disjoint
from tilesmith.backends.cpu.updates import is_update
from tilesmith.backends.cpu.virtual_tiles import VirtualTiles
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import Loop, While
from tilesmith.ir.ops.memory import Load
from tilesmith.ir.values import Value


@dataclass(frozen=True)
class _Spot:
    """An op's position in program order and the loops around it."""

    number: int
    loops: tuple[Operation, ...]


def find_unsafe_loads(region: Region, tiles: VirtualTiles) -> frozenset[Value]:
    """The tiles loaded in a grid's body that some write may change before a use."""
    return frozenset(_Finder(region, tiles).unsafe())


class _Finder:
    def __init__(self, region: Region, tiles: VirtualTiles) -> None:
        self._tiles = tiles
        self._spots: dict[Operation, _Spot] = {}
        self._users: dict[Value, list[Operation]] = {}
        self._collect(region, ())
        self._writes = [
            access
            for op in self._spots
            for access in find_accesses(op, tiles.definitions)
            if access.writes
        ]

    def unsafe(self) -> Iterator[Value]:
        for op in self._spots:
            if isinstance(op, Load) and op.result.tile.rank and self._is_unsafe(op):
                yield op.result

    def _collect(self, region: Region, loops: tuple[Operation, ...]) -> None:
        for op in region.ops:
            self._spots[op] = _Spot(len(self._spots), loops)
            for value in op.operand_values():
                self._users.setdefault(value, []).append(op)
            inside = (*loops, op) if isinstance(op, (Loop, While)) else loops
            for inner in op.regions():
                self._collect(inner, inside)

    def _final_users(self, value: Value, seen: set[Operation]) -> Iterator[Operation]:
        """The ops at whose place an element of ``value`` is computed."""
        for op in self._users.get(value, ()):
            if op in seen:
                continue
            seen.add(op)
            if len(op.results) == 1 and not self._tiles.is_stored(op.result):
                yield from self._final_users(op.result, seen)
            else:
                yield op

    def _is_unsafe(self, op: Load) -> bool:
        (access,) = find_accesses(op, self._tiles.definitions)
        writes = [write for write in self._writes if _may_meet(access, write)]
        if not writes:
            return False
        users = list(self._final_users(op.result, set()))
        return any(self._comes_between(access, write, user) for write in writes for user in users)

    def _comes_between(self, load: Access, write: Access, user: Operation) -> bool:
        start, middle, end = (self._spots[op] for op in (load.op, write.op, user))
        if write.op is user:
            return not is_update(load, write, self._tiles)
        if start.number < middle.number < end.number:
            return True
        shared = set(middle.loops) & set(end.loops)
        return bool(shared - set(start.loops))


def _may_meet(load: Access, write: Access) -> bool:
    is_same_group = load.group is None or write.group is None or load.group == write.group
    return is_same_group and not is_disjoint(load, write)
