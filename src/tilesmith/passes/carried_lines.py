"""Sums of lines that a loop carries instead of the lines.

A tile that grows in every turn of a loop, lane by lane, and of which only the sum of each line is
read in the end, keeps as many lanes as it has in registers on a GPU, and in memory on a CPU: each
turn loads and stores all of them. The line's sum of each turn may as well be added to a number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import Loop, Yield
from tilesmith.ir.ops.elementwise import Elementwise
from tilesmith.ir.ops.indexing import Full, Mask
from tilesmith.ir.ops.reduction import KINDS_BY_FUNCTION, Reduce
from tilesmith.ir.tile_writer import TileWriter
from tilesmith.ir.traversal import (
    Substitution,
    count_uses,
    definitions,
    rewrite_function,
    walk_function,
)
from tilesmith.ir.types import Dim, Value
from tilesmith.passes.eliminate_dead_code import eliminate_dead_code


def carry_sums_of_lines(function: Function, is_long: Callable[[Dim], bool]) -> Function:
    """Reduce in each turn what a loop collects only to reduce it at its end.

    Before::

        %r = loop(...) {...}:
            %new = elementwise(%acc, %x) {fn="add"} : f32[m, n]
            yield(%new)
        %s = reduce(%r) {axis=1, kind="sum"} : f32[m]

    After::

        %s = loop(...) {...}:
            %t = reduce(%x) {axis=1, kind="sum"} : f32[m]
            %new = elementwise(%sum, %t) {fn="add"} : f32[m]
            yield(%new)

    ``is_long`` says of which axes lanes may meet in each turn. Only for backends that crop tiles:
    no lanes beyond an end are added.
    """
    finder = _Finder.of(function, is_long)
    lines = {
        line.total.result: line
        for op in walk_function(function)
        if isinstance(op, Loop)
        for line in finder.lines(op)
    }
    if not lines:
        return function
    substitution = Substitution()
    by_result = {line.collected: line for line in lines.values()}

    def rewrite(op: Operation) -> Operation | list[Operation] | None:
        if isinstance(op, Reduce) and op.result in lines:
            return None
        if not isinstance(op, Loop) or by_result.keys().isdisjoint(op.results):
            return op
        return _with_sums(op, by_result, substitution)

    return eliminate_dead_code(rewrite_function(function, rewrite, substitution))


@dataclass(frozen=True)
class _Line:
    """A tile that a loop carries, whose lines are reduced behind the loop."""

    collected: Value
    """The loop's result."""
    grown: Value
    """What a turn makes of the carried tile."""
    total: Reduce


@dataclass(frozen=True)
class _Finder:
    """Looks for such tiles in one function."""

    defined: Mapping[Value, Operation]
    uses: Mapping[Value, int]
    users: Mapping[Value, Operation]
    """An op that uses a value; the only one where it is used once."""
    is_long: Callable[[Dim], bool]

    @staticmethod
    def of(function: Function, is_long: Callable[[Dim], bool]) -> _Finder:
        users = {value: op for op in walk_function(function) for value in op.operand_values()}
        body = function.body
        return _Finder(definitions(body), count_uses(body), users, is_long)

    def lines(self, loop: Loop) -> Iterator[_Line]:
        """Those of one loop."""
        rows = zip(loop.init, loop.carried, loop.body.yielded, loop.results)
        for start, carried, grown, collected in rows:
            total = self._only_total(collected)
            added = self.defined.get(grown)
            if total is None or not isinstance(added, Elementwise) or added not in loop.body.ops:
                continue
            is_sum = KINDS_BY_FUNCTION.get(added.fn) is total.reduction
            is_alone = self.uses[carried] == self.uses[grown] == 1 and carried in added.args
            if is_sum and is_alone and self._is_identity(start, total):
                yield _Line(collected, grown, total)

    def _only_total(self, collected: Value) -> Reduce | None:
        """The reduction of long lines that is all that reads a loop's result."""
        user = self.users.get(collected)
        while isinstance(user, Mask) and self.uses[collected] == 1:
            collected = user.result
            user = self.users.get(collected)
        if not isinstance(user, Reduce) or self.uses[collected] != 1:
            return None
        dtype = user.x.tile.dtype
        is_exact = dtype == user.result.tile.dtype == dtype.computed
        return user if is_exact and self.is_long(user.x.tile.shape[user.axis]) else None

    def _is_identity(self, start: Value, total: Reduce) -> bool:
        filled = self.defined.get(start)
        identity = total.reduction.identity(start.tile.dtype)
        return isinstance(filled, Full) and filled.value == identity


def _with_sums(
    loop: Loop, by_result: Mapping[Value, _Line], substitution: Substitution
) -> list[Operation]:
    """A loop that carries sums, behind what they begin with."""
    write = TileWriter(lambda: loop.loc)
    init, args, results = list(loop.init), list(loop.body.args), list(loop.results)
    grown: dict[Value, _Growth] = {}
    for place, result in enumerate(loop.results):
        line = by_result.get(result)
        if line is None:
            continue
        kind, fill = line.total.result.tile, line.total.reduction.identity(result.tile.dtype)
        init[place] = write.full(kind, fill)
        old = args[loop.rank + place]
        carried = args[loop.rank + place] = old.like(kind)
        substitution[line.total.result] = results[place] = line.total.result.like()
        grown[line.grown] = old, carried, line.total
    body = _grown_body(loop.body, args, grown)
    write.insert(replace(loop, init=tuple(init), body=body, results=tuple(results)))
    return list(write.close_region(()).ops)


_Growth = tuple[Value, Value, Reduce]
"""The tile that was carried, the sum that takes its place, and the reduction."""


def _grown_body(body: Region, args: list[Value], grown: Mapping[Value, _Growth]) -> Region:
    ops: list[Operation] = []
    new: dict[Value, Value] = {}
    for op in body.ops:
        if not isinstance(op, Elementwise) or op.result not in grown:
            ops.append(op)
            continue
        old, carried, total = grown[op.result]
        (taken,) = (arg for arg in op.args if arg is not old)
        write = TileWriter(lambda op=op: op.loc)
        part = write.reduce(taken, total.axis, total.kind)
        new[op.result] = write.apply(op.fn, carried, part)
        ops.extend(write.close_region(()).ops)
    end = body.terminator
    values = tuple(new.get(value, value) for value in body.yielded)
    return Region(tuple(args), (*ops[:-1], Yield(values=values, loc=end.loc)))
