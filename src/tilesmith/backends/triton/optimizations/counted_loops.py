"""Loops that walk a program's part of an axis count their turns from 0.

``range(begin, min(begin + size, end), step)`` has a number of turns that the assembler does not
see, and on Hopper it then takes products one by one: registers of the sum may come from two places.
Where parts have one length, ``range(0, size, step)`` says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import Grid, Loop
from tilesmith.ir.ops.elementwise import Elementwise
from tilesmith.ir.ops.indexing import BlockSize, Full
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.traversal import definitions, rewrite_function, walk, walk_function
from tilesmith.ir.types import Value
from tilesmith.schedule.schedule import Schedule

Definitions = Mapping[Value, Operation]


def count_turns(function: Function, schedule: Schedule) -> Function:
    """The function with such loops around products counted."""
    known = definitions(function.body)
    grids = [op for op in walk_function(function) if isinstance(op, Grid)]
    begins = {arg: block for grid in grids for arg, block in zip(grid.body.args, grid.blocks)}

    def rewrite(op: Operation) -> Operation | list[Operation]:
        if not isinstance(op, Loop) or len(op.blocks) != 1 or op.begins[0] not in begins:
            return op
        size = schedule.symbols.get(begins[op.begins[0]], 0)
        has_products = any(isinstance(inner, Dot) for inner in walk(op.body))
        is_whole = size and _ends_with_part(op, begins[op.begins[0]], size, known)
        step = schedule.symbols.get(op.blocks[0], 0)
        if not has_products or not is_whole or not step or size % step:
            return op
        return _counted(op, size)

    return rewrite_function(function, rewrite)


def _ends_with_part(op: Loop, block: str, size: int, known: Definitions) -> bool:
    """Whether a loop ends where its program's part does, and all parts are whole."""
    least = known.get(op.ends[0])
    if not isinstance(least, Elementwise) or least.fn != "minimum":
        return False
    sources = [known.get(arg) for arg in least.args]
    ends = [source.value for source in sources if isinstance(source, Full)]
    sums = [s for s in sources if isinstance(s, Elementwise) and s.fn == "add"]
    if len(ends) != 1 or len(sums) != 1 or int(ends[0]) % size:
        return False
    parts = [known.get(arg) for arg in sums[0].args if arg is not op.begins[0]]
    return len(parts) == 1 and isinstance(parts[0], BlockSize) and parts[0].block == block


def _counted(op: Loop, size: int) -> list[Operation]:
    begin, own = op.begins[0], op.body.args[0]
    zero, end = (_constant(begin, value) for value in (0, size))
    turn = own.like()
    place = Elementwise(args=(begin, turn), fn="add", results=(own,), loc=op.loc)
    body = Region((turn, *op.body.args[1:]), (place, *op.body.ops))
    return [zero, end, replace(op, begins=(zero.result,), ends=(end.result,), body=body)]


def _constant(like: Value, value: int) -> Full:
    return Full(value=value, results=(like.like(),), loc=like.loc)
