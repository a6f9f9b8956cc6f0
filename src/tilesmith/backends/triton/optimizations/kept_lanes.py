"""Takes the reduction of a running sum out of its loop.

A sum over lanes is added up among threads and then among warps, which wait for each other. A loop
that adds such a sum to a total does so in every turn. Here each lane has a total of its own, and
lanes are added up once after the loop, as rolled reductions have it. What is added is the same, in
another order, and fewer terms meet in one total.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from tilesmith.dtypes import F32
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import Loop, Yield
from tilesmith.ir.ops.elementwise import Elementwise
from tilesmith.ir.ops.indexing import Full
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.reduction import Reduce, ReduceKind
from tilesmith.ir.tile_writer import TileWriter
from tilesmith.ir.traversal import count_uses, definitions, rewrite_function, walk
from tilesmith.ir.types import Value
from tilesmith.schedule.schedule import Schedule

MOST_LANES, MOST_OF_COLUMNS = 16, 64
"""Of a thread, all sums of a loop together: each takes a register from loads in flight.

On an H200, ms, a reduction in every turn and by lanes: kl_div of 4096x65536 with 32 lanes 0.491,
0.504, with 16 0.503, 0.489; jsd of 8192x16384 with 8 0.441, 0.415. Columns are added up one by one
among threads: sums of 112 sequences of up to 320 rows with 32 lanes 0.0234, 0.0163, means 0.0299,
0.0174, with 64 0.0252, 0.0157; sums of 512 sequences of up to 128 rows with 128 0.0123, 0.0131.
"""


@dataclass(frozen=True, eq=False)
class _Sum:
    """The place of a total among the values of a loop, and the ops that add to it."""

    place: int
    reduce: Reduce
    add: Elementwise


def keep_lanes(function: Function, schedule: Schedule) -> Function:
    """The function with running sums kept by lanes, where a thread has few of them.

    Before::

        %total = loop([%zero], [%n], [], [%init]) {blocks=["v"]} (%b: i32[], %old: f32[]) {
          %sum = reduce(%terms) {axis=0, kind="sum"} : f32[]
          %new = elementwise(%old, %sum) {fn="add"} : f32[]
          yield(%new)
        }

    After::

        %lanes = loop([%zero], [%n], [], [%zeros]) {blocks=["v"]} (%b: i32[], %old: f32[v]) {
          %new = elementwise(%old, %terms) {fn="add"} : f32[v]
          yield(%new)
        }
        %sum = reduce(%lanes) {axis=0, kind="sum"} : f32[]
        %total = elementwise(%init, %sum) {fn="add"} : f32[]
    """
    known = definitions(function.body)

    def rewrite(op: Operation) -> Operation | list[Operation]:
        # Beside products, registers and the order of loads are for the pipeliner.
        if not isinstance(op, Loop) or any(isinstance(inner, Dot) for inner in walk(op.body)):
            return op
        sums = _find_sums(op)
        lanes = sum(_lanes_of_thread(one.reduce.x, schedule) for one in sums)
        is_line = any(one.reduce.axis == one.reduce.x.tile.rank - 1 for one in sums)
        most = MOST_LANES if is_line else MOST_OF_COLUMNS
        return _rewritten(op, sums, known) if sums and lanes <= most else op

    return rewrite_function(function, rewrite)


def _find_sums(loop: Loop) -> list[_Sum]:
    known, uses = definitions(loop.body), count_uses(loop.body)
    found: list[_Sum] = []
    for place, (old, new) in enumerate(zip(loop.carried, loop.body.yielded)):
        add = known.get(new)
        if not isinstance(add, Elementwise) or add.fn != "add" or old not in add.args:
            continue
        if uses[new] > 1 or uses[old] > 1:
            continue
        (term,) = [arg for arg in add.args if arg is not old]
        reduce = known.get(term)
        if uses[term] == 1 and isinstance(reduce, Reduce) and _is_sum_of(reduce, loop):
            found.append(_Sum(place, reduce, add))
    return found


def _is_sum_of(op: Reduce, loop: Loop) -> bool:
    """Whether it adds up fp32 numbers along an axis that the loop walks, in the loop itself."""
    axis = op.x.tile.shape[op.axis]
    is_plain = op.reduction is ReduceKind.SUM and op.x.tile.dtype == op.result.tile.dtype == F32
    return is_plain and op in loop.body.ops and bool({*axis.symbols} & {*loop.blocks})


def _lanes_of_thread(x: Value, schedule: Schedule) -> float:
    threads = schedule.num_warps * schedule.target.warp_size
    return max(1.0, prod(map(schedule.physical, x.tile.shape)) / threads)


def _rewritten(loop: Loop, sums: list[_Sum], known: Mapping[Value, Operation]) -> list[Operation]:
    """The loop with lanes in place of totals, between their zeros and what adds them up."""
    before, after = TileWriter(), TileWriter()
    init, results, args = list(loop.init), list(loop.results), list(loop.body.args)
    yielded = list(loop.body.yielded)
    changed: dict[Operation, Operation | None] = {}
    for one in sums:
        wide = one.reduce.x.tile
        init[one.place] = before.full(wide, 0.0)
        results[one.place], lanes = (loop.results[one.place].like(wide) for _ in range(2))
        args[loop.rank + one.place] = lanes
        new = one.add.result.like(wide)
        yielded[one.place] = new
        changed[one.add] = replace(one.add, args=(lanes, one.reduce.x), results=(new,))
        changed[one.reduce] = None
        _add_up(after, replace(one.reduce, x=results[one.place]), loop, one.place, known)
    ops = [changed.get(op, op) for op in loop.body.ops if not isinstance(op, Yield)]
    end = Yield(values=tuple(yielded), loc=loop.body.ops[-1].loc)
    body = Region(tuple(args), (*(op for op in ops if op is not None), end))
    made = replace(loop, init=tuple(init), body=body, results=tuple(results))
    return [*before.close_region().ops, made, *after.close_region().ops]


def _add_up(
    write: TileWriter, reduce: Reduce, loop: Loop, place: int, known: Mapping[Value, Operation]
) -> None:
    """What the loop gave, from its lanes and what it began with."""
    given, own = loop.init[place], loop.results[place]
    start = known.get(given)
    if isinstance(start, Full) and start.value == 0.0:
        write.insert(replace(reduce, results=(own,)))
        return
    total = own.like()
    write.insert(replace(reduce, results=(total,)))
    write.insert(Elementwise(args=(given, total), fn="add", results=(own,), loc=reduce.loc))
