"""Results of the forward kernel that the backward loads, where computing them again costs more.

A value that the forward kernel stores is there already: a row statistic, the output of a softmax.
What it was computed from may follow from it, too: powers are shares times their sum. Whether that
is worth it is not a question of patterns: the backward is derived with and without, and the
cheaper one is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TypeVar

from tilesmith.gradients.copies import Copies
from tilesmith.gradients.rounded_uses import can_be_rounded
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Region, Trait
from tilesmith.ir.ops.control_flow import Grid, Loop
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Full
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.ir.ops.reduction import Reduce, Scan
from tilesmith.ir.ops.shape import Broadcast, ExpandDims
from tilesmith.ir.tile_writer import TileWriter
from tilesmith.ir.traversal import definitions, walk
from tilesmith.ir.types import Dim, TileType, Value

ASSUMED_BLOCK = 64
"""Of tuned blocks, and the turns of loops of unknown length: only the order of costs matters."""
WORK = {"add": 0.25, "sub": 0.25, "mul": 0.25, "neg": 0.25, "div": 1.0}
"""Of scalar functions, next to a byte that is moved; others are mostly exponentials."""
OTHER_WORK = 2.0
REDUCTION_WORK = 4.0
"""Of an element that is summed up: lanes, and often warps, wait for each other."""
PRODUCT_WORK = 1.0 / 16
ATOMIC_WORK = 8.0
Program = TypeVar("Program")


@dataclass(frozen=True)
class SavedValue:
    """A forward value, and the ops that get it back."""

    value: Value
    tensor: Value
    ops: tuple[Operation, ...]
    loaded: Value
    """What they give."""
    after: Value
    """Which op they come after: the one with this result."""
    is_rounded: bool
    """Whether it was stored in a narrower type."""
    stand_ins: tuple[tuple[Value, tuple[Operation, ...]], ...]
    """Values, and the ops whose last result stands for each; none: what was loaded does."""
    source: Operation | None = None
    """What computed the value before it was stored."""

    @property
    def is_solved(self) -> bool:
        """Whether other values follow from it, which should cancel."""
        return len(self.stand_ins) > 1


def find_saved(
    function: Function, names: Collection[str] | None, passing: Collection[Value] = ()
) -> list[SavedValue]:
    """What the backward may load of what the function stores.

    Small values come first. ``names``: of the tensors that are there; None: all are. ``passing``:
    tensors whose elements may have been overwritten.
    """
    writes = [op.tensor for op in walk(function.body) if isinstance(op, (Store, Atomic))]
    known = definitions(function.body)
    found: list[SavedValue] = []
    for region, op in _stores(function.body):
        is_there = names is None or op.tensor.name in names
        is_plain = op.mask is None and op.bases is None and op.value.tile.dtype.is_float
        is_lasting = writes.count(op.tensor) == 1 and op.tensor not in passing
        if is_there and is_plain and is_lasting:
            found += _loaded(op, region, known)
    return sorted(found, key=lambda one: one.value.tile.rank)


def _stores(region: Region) -> Iterator[tuple[Region, Store]]:
    for op in region.ops:
        if isinstance(op, Store):
            yield region, op
        for inner in op.regions():
            yield from _stores(inner)


def _loaded(store: Store, region: Region, known: Mapping[Value, Operation]) -> Iterator[SavedValue]:
    value, cast = store.value, known.get(store.value)
    if isinstance(cast, Cast) and cast.x.tile.dtype.is_float and not cast.bitcast:
        value = cast.x
    source = known.get(value)
    indices = _index_ops(store.indices, region, known)
    if indices is None or source is None or source not in region.ops or isinstance(source, Load):
        return
    copies = Copies()
    writer = TileWriter(lambda: store.loc)
    writer.open_region()
    for op in indices:
        writer.insert(copies.clone(op))
    places = tuple(map(copies.of, store.indices))
    stored = writer.create(Load, store.value.type, tensor=store.tensor, indices=places)
    loaded = writer.cast(stored, value.tile.dtype)
    loaded.name = value.name or f"{store.tensor.name}_tile"
    is_rounded = store.value.tile.dtype.bits < value.tile.dtype.bits
    ops = writer.close_region().ops
    one = SavedValue(value, store.tensor, ops, loaded, value, is_rounded, ((value, ()),), source)
    yield one
    if isinstance(source, Elementwise) and source.fn in ("mul", "div"):
        yield from _solved(one, source, known)


def _solved(
    saved: SavedValue, source: Elementwise, known: Mapping[Value, Operation]
) -> Iterator[SavedValue]:
    """The same where rows are scaled by numbers of their own: what they were before."""
    pairs = [source.args] if source.fn == "div" else [source.args, source.args[::-1]]
    for whole, scale in pairs:
        is_row = isinstance(known.get(scale), Broadcast) and whole in known
        is_certain = source.fn == "div" or _is_never_zero(scale, known)
        if is_row and is_certain and not isinstance(known.get(whole), (Broadcast, Load, Cast)):
            back = "mul" if source.fn == "div" else "div"
            result = whole.like()
            op = Elementwise(args=(saved.loaded, scale), fn=back, results=(result,), loc=source.loc)
            yield replace(saved, stand_ins=(*saved.stand_ins, (whole, (op,))))


def _is_never_zero(scale: Value, known: Mapping[Value, Operation]) -> bool:
    """Whether it is a reciprocal, and so no zero unless something is infinite."""
    op = known.get(scale)
    while isinstance(op, (Broadcast, Cast, ExpandDims)):
        op = known.get(op.x)
    if not isinstance(op, Elementwise):
        return False
    above = known.get(op.args[0])
    is_quotient = op.fn == "div" and isinstance(above, Full) and above.value != 0
    return is_quotient or op.fn == "rsqrt"


def _index_ops(
    indices: Sequence[Value], region: Region, known: Mapping[Value, Operation]
) -> list[Operation] | None:
    """The ops of a region that give indices, in program order; None where memory is read."""
    found: set[Operation] = set()
    waiting = list(indices)
    own = set(region.ops)
    while waiting:
        op = known.get(waiting.pop())
        if op is None or op not in own:
            continue
        if Trait.PURE not in op.traits or op.regions():
            return None
        found.add(op)
        waiting += op.operand_values()
    return [op for op in region.ops if op in found]


def choose_saved(
    candidates: Sequence[SavedValue],
    derive: Callable[[Sequence[SavedValue]], Program],
    function_of: Callable[[Program], Function],
) -> Program:
    """The cheapest backward, of those that load some of the candidates."""
    chosen: list[SavedValue] = []
    best = derive(chosen)
    least = cost_of(function_of(best))
    for candidate in candidates:
        taken = (candidate.value, candidate.after)
        others = [one for one in chosen if one.value not in taken and one.after not in taken]
        program = derive([*others, candidate])
        function = function_of(program)
        cost = cost_of(function)
        is_exact = not candidate.is_rounded or can_be_rounded(
            candidate.source, candidate.tensor, function, function_of(best)
        )
        if cost < least and is_exact:
            best, least, chosen = program, cost, [*others, candidate]
    return best


def cost_of(function: Function) -> float:
    """How much a function computes and moves, in bytes; sizes that are not known are alike."""
    return _Costs(function).of(function.body)


class _Costs:
    def __init__(self, function: Function) -> None:
        self._known = definitions(function.body)
        self._sizes = {size.name: size.hint for size in function.sizes}
        for block in function.blocks:
            self._sizes[block.name] = block.fixed or ASSUMED_BLOCK

    def of(self, region: Region) -> float:
        """The cost of running a region once."""
        return sum(self._of_op(op) for op in region.ops)

    def _of_op(self, op: Operation) -> float:
        inner = sum(self.of(region) for region in op.regions())
        if isinstance(op, (Grid, Loop)):
            return inner * prod(self._turns(op))
        return inner + self._work(op)

    def _turns(self, op: Grid | Loop) -> Iterator[float]:
        for begin, end, block in zip(op.begins, op.ends, op.blocks):
            first, last = self._known.get(begin), self._known.get(end)
            size = self._sizes[block] if block else 1
            if isinstance(first, Full) and isinstance(last, Full):
                yield max(1.0, (last.value - first.value) / size)
            else:
                yield ASSUMED_BLOCK / size

    def _elements(self, value: Value) -> int:
        kind = value.type
        return prod(map(self._size, kind.shape)) if isinstance(kind, TileType) else 1

    def _size(self, dim: Dim) -> int:
        return prod(self._sizes[f] if isinstance(f, str) else f for f in dim.factors)

    def _work(self, op: Operation) -> float:
        if isinstance(op, (Load, Store, Atomic)):
            value = op.result if isinstance(op, Load) else op.value
            moved = self._elements(value) * value.tile.dtype.bits / 8
            return moved * (ATOMIC_WORK if isinstance(op, Atomic) else 1.0)
        if isinstance(op, (Reduce, Scan)):
            return REDUCTION_WORK * self._elements(op.x)
        if isinstance(op, Dot):
            depth = self._size(op.lhs.tile.shape[-1])
            return PRODUCT_WORK * depth * self._elements(op.result)
        if isinstance(op, Elementwise):
            return WORK.get(op.fn, OTHER_WORK) * self._elements(op.result)
        return 0.0
