"""Walks full-slice dimensions in chunks, with accumulators, instead of holding whole rows.

Accumulators keep one lane per lane of a chunk, and are reduced once after the loop. Invalid lanes
of a chunk leave them unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilesmith.analysis.masked_lanes import Lanes, find_masked_lanes
from tilesmith.analysis.restructuring import RowPlan, has_dim, is_anchor, plan_rolling, row_closure
from tilesmith.analysis.scalar_arithmetic import convert
from tilesmith.dtypes import I32
from tilesmith.ir.function import Block, Function
from tilesmith.ir.operation import Operation, Region, Trait
from tilesmith.ir.ops.control_flow import Loop, Yield
from tilesmith.ir.ops.elementwise import Cast
from tilesmith.ir.ops.indexing import Arange, Full, Mask, TileIndex
from tilesmith.ir.ops.memory import ProgramBarrier
from tilesmith.ir.ops.reduction import Reduce, ReduceKind
from tilesmith.ir.ops.shape import Broadcast, ExpandDims
from tilesmith.ir.tile_writer import TileWriter
from tilesmith.ir.traversal import definitions, walk_function
from tilesmith.ir.types import ONE, Dim, Shape, TileType, Type, Value, scalar


class _ChunkAccumulator:
    """The accumulators of one reduction. ``shape`` is the operand's with the chunk for the axis."""

    def __init__(self, op: Reduce, shape: Shape, lanes: Lanes) -> None:
        self.op = op
        self.shape = shape
        dtype = op.reduction.accumulator(op.x.tile.dtype, op.result.tile.dtype)
        # Comparisons of bools are those of numbers.
        is_compared = dtype.is_bool and op.reduction not in (ReduceKind.ANY, ReduceKind.ALL)
        self._dtype = I32 if is_compared else dtype
        self._identity = op.reduction.identity(self._dtype)
        held = convert(lanes.axes[op.axis], op.x.tile.dtype, self._dtype)
        self._is_neutral = held == self._identity

    def start(self, write: TileWriter) -> list[Value]:
        """The initial values: identities, and for arg forms the positions of the first chunk."""
        values = [write.full(TileType(self._dtype, self.shape), self._identity)]
        if self.op.reduction.is_arg:
            line = TileType(self.op.result.tile.dtype, (self.shape[self.op.axis],))
            values.append(self.along_axis(write, write.create(Arange, line)))
        return values

    def accumulate(
        self, write: TileWriter, carried: list[Value], x: Value, position: Value
    ) -> list[Value]:
        """The next values, from those carried, a chunk of the operand and its positions."""
        chunk = self._prepare(write, x)
        if not self.op.reduction.is_arg:
            return [write.apply(self.op.reduction.scalar_function, carried[0], chunk)]
        best, where = carried
        place = self.along_axis(write, write.cast(position, where.tile.dtype))
        is_better = self._is_better(write, chunk, best)
        pairs = ((chunk, best), (place, where))
        return [write.apply("where", is_better, new, old) for new, old in pairs]

    def finish(self, write: TileWriter, values: list[Value]) -> None:
        """Reduce the accumulators to the result of the op, which keeps its value."""
        is_arg, target = self.op.reduction.is_arg, self.op.result
        total = self._first_best(write, *values) if is_arg else values[0]
        kind, dtype = "min" if is_arg else self.op.kind, total.tile.dtype
        if dtype == target.tile.dtype:
            self._reduce_into(write, total, kind, target)
            return
        partial = Value(target.tile.with_dtype(dtype), target.name, target.loc)
        self._reduce_into(write, total, kind, partial)
        write.insert(Cast(x=partial, results=(target,), loc=self.op.loc))

    def along_axis(self, write: TileWriter, line: Value) -> Value:
        """A tile along the reduced axis, repeated over the others."""
        axes = tuple(axis for axis in range(len(self.shape)) if axis != self.op.axis)
        ones = tuple(ONE if axis in axes else dim for axis, dim in enumerate(self.shape))
        if axes:
            line = write.create(ExpandDims, line.tile.with_shape(ones), x=line, axes=axes)
        if ones != self.shape:
            line = write.create(Broadcast, line.tile.with_shape(self.shape), x=line)
        return line

    def _prepare(self, write: TileWriter, x: Value) -> Value:
        """A chunk in the accumulator's type, neutral in invalid lanes."""
        if self._dtype.is_bool and not x.tile.dtype.is_bool:
            zero = write.full(x.tile, 0.0 if x.tile.dtype.is_float else 0)
            x = write.apply("ne", x, zero)
        x = write.cast(x, self._dtype)
        if self._is_neutral:
            return x
        return write.create(Mask, x.tile, x=x, fill=self._identity, axes=(self.op.axis,))

    def _is_better(self, write: TileWriter, new: Value, best: Value) -> Value:
        """Strictly better, so that the first of equals stays; NaN is better than any number."""
        fn = "gt" if self.op.reduction is ReduceKind.ARGMAX else "lt"
        is_better = write.apply(fn, new, best)
        if not self._dtype.is_float:
            return is_better
        is_old_number = write.apply("not", write.apply("isnan", best))
        is_first_nan = write.apply("and", write.apply("isnan", new), is_old_number)
        return write.apply("or", is_better, is_first_nan)

    def _first_best(self, write: TileWriter, best: Value, where: Value) -> Value:
        """The positions of lanes that hold the row's best value; elsewhere more than any."""
        kind = "max" if self.op.reduction is ReduceKind.ARGMAX else "min"
        row = Value(self.op.result.tile.with_dtype(self._dtype))
        self._reduce_into(write, best, kind, row)
        is_best = write.apply("eq", best, write.spread(row, self.op.axis, self.shape))
        if self._dtype.is_float:
            is_best = write.apply("or", is_best, write.apply("isnan", best))
        return write.apply(
            "where", is_best, where, write.full(where.tile, where.tile.dtype.highest)
        )

    def _reduce_into(self, write: TileWriter, x: Value, kind: str, target: Value) -> None:
        axis, loc = self.op.axis, self.op.loc
        write.insert(Reduce(x=x, axis=axis, kind=kind, results=(target,), loc=loc))


def roll_reductions(function: Function, dims: Mapping[Dim, str]) -> Function:
    """Turn each dimension into loops over chunks of the new block named for it.

    Before::

        %n = arange() : i32[4096]
        %v = load(%x, none, [%r, %n]) : f32[4096]
        %s = reduce(%v) {axis=0, kind="sum"} : f32[]
        %q = elementwise(%v) {fn="exp"} : f32[4096]
        store(%out, %q, none, [%r, %n])

    After::

        %zero = full() {value=0} : i32[]
        %end = full() {value=4096} : i32[]
        %init = full() {value=0.0} : f32[chunk]
        %acc = loop([%zero], [%end], [], [%init]) {blocks=["chunk"]} : f32[chunk]
        (%b: i32[], %old: f32[chunk]) {
          %n = tile_index(%b) {block="chunk"} : i32[chunk]
          %v = load(%x, none, [%r, %n]) : f32[chunk]
          %q = elementwise(%v) {fn="exp"} : f32[chunk]
          store(%out, %q, none, [%r, %n])
          %m = mask(%v) {fill=0.0, axes=[0]} : f32[chunk]
          %new = elementwise(%old, %m) {fn="add"} : f32[chunk]
          yield(%new)
        }
        %s = reduce(%acc) {axis=0, kind="sum"} : f32[]

    What needs a finished reduction goes into a further loop that reads the row again. A
    dimension that cannot be rolled (or no longer, after another one was) is left as it is. The
    order of accesses that no longer share their indices is left to ``order_memory``.
    """
    rolled = function
    for dim, block in dims.items():
        plans = plan_rolling(rolled, dim)
        if plans is not None:
            rolled = _Rolling(rolled, dim, block, plans).run()
    return rolled


class _Rolling:
    """Rolls one dimension of a function."""

    def __init__(self, function: Function, dim: Dim, block: str, plans: list[RowPlan]) -> None:
        self._function = function
        self._dim = dim
        self._block = block
        self._chunk = Dim.of(block)
        self._plans = {plan.region: plan for plan in plans}
        self._defined_by = definitions(function.body)
        self._order = {op: i for i, op in enumerate(walk_function(function))}
        self._lanes = find_masked_lanes(function)
        indices = (op for op in self._order if isinstance(op, Arange) and has_dim(op.result, dim))
        dtypes = [op.result.tile.dtype for op in indices]
        self._index_dtype = max(dtypes, key=lambda dtype: dtype.bits, default=I32)

    def run(self) -> Function:
        hint = self._dim.constant or self._function.hint(self._dim.symbol or 1)
        block = Block(self._block, extent=hint)
        body = self._roll_region(self._function.body)
        return replace(self._function, body=body, blocks=(*self._function.blocks, block))

    def _roll_region(self, region: Region) -> Region:
        plan = self._plans.get(region)
        if plan is None:
            return Region(region.args, tuple(map(self._roll_inside, region.ops)))
        write = TileWriter()
        end = [op for op in region.ops if Trait.TERMINATOR in op.traits]
        # Barriers are put in again where the loops need them.
        replaced = {*plan.rows, *end, *(op for op in region.ops if isinstance(op, ProgramBarrier))}
        for phase in range(plan.num_phases):
            for op in region.ops:
                if plan.phases[op] == phase and op not in replaced:
                    write.insert(self._roll_inside(op))
            anchors = plan.anchors(self._dim, phase)
            if anchors:
                self._emit_loop(write, anchors)
        return Region(region.args, (*write.close_region().ops, *end))

    def _roll_inside(self, op: Operation) -> Operation:
        return op.with_regions(tuple(map(self._roll_region, op.regions())))

    def _emit_loop(self, write: TileWriter, anchors: list[Operation]) -> None:
        sums = [
            _ChunkAccumulator(op, self._chunk_type(op.x.tile).shape, self._lanes[op][op.x])
            for op in anchors
            if isinstance(op, Reduce)
        ]
        starts = [item.start(write) for item in sums]
        init = tuple(value for values in starts for value in values)
        begin = Value(scalar(self._index_dtype), self._block)
        carried = tuple(value.like() for value in init)
        zero = write.create(Full, begin.tile, value=0)
        end = self._extent(write)
        write.open_region()
        groups = _split_like(starts, carried)
        self._emit_chunk(write, anchors, begin, list(zip(sums, groups)))
        body = write.close_region((begin, *carried))
        loop = Loop(
            begins=(zero,), ends=(end,), steps=(), init=init, blocks=(self._block,), body=body,
            results=tuple(value.like() for value in init), loc=anchors[0].loc,
        )  # fmt: skip
        write.insert(loop)
        for item, values in zip(sums, _split_like(starts, loop.results)):
            item.finish(write, values)

    def _extent(self, write: TileWriter) -> Value:
        if self._dim.constant is not None:
            return write.create(Full, scalar(self._index_dtype), value=self._dim.constant)
        size = self._function.find_parameter(self._dim.symbol or "")
        assert size is not None
        return write.cast(size, self._index_dtype)

    def _emit_chunk(
        self,
        write: TileWriter,
        anchors: list[Operation],
        begin: Value,
        accumulators: list[tuple[_ChunkAccumulator, list[Value]]],
    ) -> None:
        """The row ops that the anchors need, over one chunk, and the new accumulators."""
        roots = [value for op in anchors for value in op.operand_values()]
        needed = row_closure(roots, self._dim, self._defined_by)
        needed.update(op for op in anchors if not isinstance(op, Reduce))
        copies: dict[Value, Value] = {}
        line = TileType(self._index_dtype, (self._chunk,))
        position = write.create(TileIndex, line, begin=begin, block=self._block)
        for op in sorted(needed, key=self._order.__getitem__):
            assert not isinstance(op, Reduce) or not is_anchor(op, self._dim)
            self._emit_copy(write, op, copies, position)
        new = [
            value
            for item, old in accumulators
            for value in item.accumulate(write, old, copies[item.op.x], position)
        ]
        write.insert(Yield(values=tuple(new)))

    def _emit_copy(
        self, write: TileWriter, op: Operation, copies: dict[Value, Value], position: Value
    ) -> None:
        """The op over a chunk instead of the whole dimension; a slice's index becomes a tile's."""
        if isinstance(op, Arange) and op.result.tile.dtype == self._index_dtype:
            copies[op.result] = position
            return
        results = tuple(value.like(self._chunk_type(value.type)) for value in op.results)
        copies.update(zip(op.results, results))
        if isinstance(op, Arange):
            write.insert(Cast(x=position, results=results, loc=op.loc))
            return
        copy = op.with_operands(lambda value: copies.get(value, value))
        write.insert(replace(copy, results=results))

    def _chunk_type(self, old: Type) -> TileType:
        assert isinstance(old, TileType)
        shape = tuple(self._chunk if dim == self._dim else dim for dim in old.shape)
        return old.with_shape(shape)


def _split_like(groups: list[list[Value]], values: tuple[Value, ...]) -> list[list[Value]]:
    """The values in groups as long as the given ones."""
    rest = iter(values)
    return [[next(rest) for _ in group] for group in groups]
