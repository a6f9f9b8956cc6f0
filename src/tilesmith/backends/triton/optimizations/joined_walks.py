"""Two loops over the same chunks: one for maxima, the next for sums of powers around them.

Only what is certain is found: loops that do nothing else, with nothing between them that writes,
over rows whose chunks lie aligned in memory, so that a thread holds neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf, prod

from tilesmith.analysis.effects import is_elsewhere, is_pure
from tilesmith.backends.triton.optimizations.power_sums import POWERS, source, unmasked
from tilesmith.dtypes import F32
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import Loop, Yield
from tilesmith.ir.ops.elementwise import Elementwise
from tilesmith.ir.ops.indexing import Full
from tilesmith.ir.ops.memory import Load
from tilesmith.ir.ops.reduction import Reduce
from tilesmith.ir.traversal import count_uses
from tilesmith.ir.types import Value
from tilesmith.schedule.schedule import Schedule

LOADED_BYTES = 16
"""That a thread loads at once: neighbours in these share a maximum."""
LEAST_BYTES = 2
"""Of an element. Rows of bytes were not timed."""
Definitions = dict[Value, Operation]


@dataclass(frozen=True, eq=False)
class Pair:
    """A running maximum of ``x``, and the sum of powers around it: what reduces their lanes."""

    x: Value
    peak: Reduce
    total: Reduce
    fn: str


@dataclass(frozen=True, eq=False)
class Walks:
    """Two loops that may be one, with a pair for each value that the first one carries."""

    first: Loop
    second: Loop
    pairs: tuple[Pair, ...]
    group: int
    """Neighbours that share a maximum."""


def find_walks(
    ops: Sequence[Operation], known: Definitions, uses: dict[Value, int], schedule: Schedule
) -> Walks | None:
    """The first two such loops among the ops of a region."""
    for place, second in enumerate(ops):
        before = [i for i, op in enumerate(ops[:place]) if isinstance(op, Loop)]
        if not before or not isinstance(second, Loop):
            continue
        first, between = ops[before[-1]], ops[before[-1] + 1 : place]
        assert isinstance(first, Loop)
        group = _find_group(first, schedule)
        if not group or not all(is_pure(op) or _is_read(op) for op in between):
            continue
        if _is_same_walk(first, second, known) and all(map(_only_reads, (first, second))):
            found = _Finder(first, second, ops, known, uses).pairs()
            if found:
                return Walks(first, second, found, group)
    return None


def _is_read(op: Operation) -> bool:
    return isinstance(op, Load) and not is_elsewhere(op)


def _only_reads(loop: Loop) -> bool:
    return all(is_pure(op) or _is_read(op) or isinstance(op, Yield) for op in loop.body.ops)


def _is_same_walk(first: Loop, second: Loop, known: Definitions) -> bool:
    bounds = zip((*first.begins, *first.ends), (*second.begins, *second.ends))
    is_plain = first.rank == 1 and bool(first.blocks[0]) and not first.is_ordered
    are_same = all(_is_same_scalar(known, one, other) for one, other in bounds)
    return is_plain and first.blocks == second.blocks and are_same


def _is_same_scalar(known: Definitions, one: Value, other: Value) -> bool:
    left, right = known.get(one), known.get(other)
    is_constant = isinstance(left, Full) and isinstance(right, Full) and left.value == right.value
    return one is other or is_constant


def _find_group(loop: Loop, schedule: Schedule) -> int:
    """How many neighbours a thread has: chunks are long, and rows begin where loads may; else 0."""
    loads = [op for op in loop.body.ops if isinstance(op, Load) and op.result.tile.rank]
    sizes = [op.result.tile.dtype.itemsize for op in loads]
    if not loads or min(sizes) < LEAST_BYTES:
        return 0
    group = LOADED_BYTES // max(sizes)
    threads = schedule.num_warps * schedule.target.warp_size
    lanes = [prod(schedule.physical_shape(value.tile.shape)) for value in loop.init]
    are_long = all(n >= group * threads for n in lanes)
    return group if are_long and all(_is_aligned(load, group) for load in loads) else 0


def _is_aligned(load: Load, group: int) -> bool:
    *outer, last = load.tensor.tensor.strides
    return last == 1 and all(isinstance(n, int) and n % group == 0 for n in outer)


class _Finder:
    """Matches what the second loop adds up with what the first one takes the maximum of."""

    def __init__(
        self,
        first: Loop,
        second: Loop,
        ops: Sequence[Operation],
        known: Definitions,
        uses: dict[Value, int],
    ) -> None:
        self._first, self._second = first, second
        self._ops, self._known, self._uses = ops, known, uses
        self._inner = [count_uses(loop.body) for loop in (first, second)]

    def pairs(self) -> tuple[Pair, ...]:
        """One for each value that a loop carries; none where one of them is something else."""
        peaks = list(self._running(self._first, 0, "maximum", -inf, "max"))
        sums = list(self._running(self._second, 1, "add", 0.0, "sum"))
        if None in peaks or None in sums or len(peaks) != len(sums):
            return ()
        by_peak = {found[1].result: found for found in peaks if found is not None}
        pairs = [self._pair(*found, by_peak) for found in sums if found is not None]
        made = [pair for pair in pairs if pair is not None]
        is_whole = len({pair.peak for pair in made}) == len(peaks)
        order = {found[1]: i for i, found in enumerate(peaks) if found is not None}
        return tuple(sorted(made, key=lambda pair: order[pair.peak])) if is_whole else ()

    def _running(
        self, loop: Loop, number: int, fn: str, start: float, kind: str
    ) -> Iterator[tuple[Value, Reduce] | None]:
        """What each carried value is combined with, and the op that reduces its lanes at last."""
        for init, old, new, result in zip(loop.init, loop.carried, loop.body.yielded, loop.results):
            op, begin = self._known.get(new), self._known.get(init)
            last = [o for o in self._ops if isinstance(o, Reduce) and o.x is result]
            is_plain = (
                isinstance(op, Elementwise)
                and op.fn == fn
                and old in op.args
                and isinstance(begin, Full)
                and begin.value == start
                and self._inner[number][old] == self._inner[number][new] == 1
                and self._uses[result] == len(last) == 1
                and last[0].kind == kind
                and last[0].axis == result.tile.rank - 1
                and result.tile.dtype == last[0].result.tile.dtype == F32
                and result.tile.shape[-1].symbol == loop.blocks[0]
            )
            if not is_plain or not isinstance(op, Elementwise):
                yield None
                continue
            others = [arg for arg in op.args if arg is not old]
            yield (others[0], last[0]) if len(others) == 1 else None

    def _pair(
        self, term: Value, total: Reduce, peaks: dict[Value, tuple[Value, Reduce]]
    ) -> Pair | None:
        power = self._known.get(unmasked(term, self._known))
        if not isinstance(power, Elementwise) or power.fn not in POWERS:
            return None
        off = self._known.get(power.args[0])
        if not isinstance(off, Elementwise) or off.fn != "sub":
            return None
        found = peaks.get(source(off.args[1], self._known))
        if found is None or not self._is_same(unmasked(found[0], self._known), off.args[0]):
            return None
        return Pair(found[0], found[1], total, power.fn)

    def _is_same(self, one: Value, other: Value) -> bool:
        """Whether values of the two loops are computed alike from what is outside of them."""
        if one is other or (one, other) == (self._first.body.args[0], self._second.body.args[0]):
            return True
        left, right = self._known.get(one), self._known.get(other)
        if left is None or right is None or one.type != other.type:
            return False
        given, also = list(left.operand_values()), list(right.operand_values())
        is_inside = left in self._first.body.ops and right in self._second.body.ops
        is_alike = type(left) is type(right) and left.attributes() == right.attributes()
        is_alike = is_alike and not left.regions() and len(left.results) == 1
        if not is_inside or not is_alike or len(given) != len(also):
            return False
        return all(map(self._is_same, given, also))
