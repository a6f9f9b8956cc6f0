"""The adjoint of running combinations: a scan the other way, of linear maps.

Each result is ``y[t] = f(y[t - 1], x[t])``. Its cotangent is that of its uses and, by the slope of
``f`` on its left side, that of the next result: ``l[t] = g[t] + a[t + 1] * l[t + 1]``. Such maps
are combined like other elements, from the last to the first. A reduction is the last result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tilesmith.dtypes import F32, F64, I32, DType
from tilesmith.gradients.copies import Copies
from tilesmith.gradients.terms import cotangent_dtype
from tilesmith.gradients.tile_derivatives import TILE_DERIVATIVES, Tape, positions_along
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import Yield
from tilesmith.ir.ops.indexing import Full
from tilesmith.ir.ops.rearrangement import Gather
from tilesmith.ir.ops.reduction import ReduceKind, ReduceWith, Scan, ScanWith
from tilesmith.ir.ops.shape import ExpandDims
from tilesmith.ir.tile_writer import TileWriter
from tilesmith.ir.types import TileType, Value, scalar

Row = list[Value | None]
EXTREMES = {ReduceKind.MAX: "ge", ReduceKind.MIN: "le"}
"""How the right one of two elements is to the left one where it is the extreme; also of equals."""


def as_scan_with(op: Scan) -> ScanWith:
    """A scan by a known function as one by any: its derivative is found in the same way."""
    kind = scalar(op.x.tile.dtype)
    left, right = (Value(kind, name, op.loc) for name in ("left", "right"))
    writer = TileWriter(lambda: op.loc)
    writer.open_region()
    if op.reduction in EXTREMES:
        is_right = writer.apply(EXTREMES[op.reduction], right, left)
        found = writer.apply("where", is_right, right, left)
    else:
        found = writer.apply("mul", left, right)
    writer.effect(Yield, values=(found,))
    combine = writer.close_region((left, right))
    return ScanWith(
        xs=(op.x,),
        axis=op.axis,
        reverse=op.reverse,
        combine=combine,
        results=op.results,
        loc=op.loc,
    )


def reverse_scan(tape: Tape, op: ScanWith, cotangents: Sequence[Value | None]) -> None:
    """Write the adjoint of a scan for cotangents of its results."""
    results = [tape.value(result) for result in op.results]
    _Adjoint(tape, op, results).write(cotangents)


def reverse_reduction(tape: Tape, op: ReduceWith, cotangents: Sequence[Value | None]) -> None:
    """The same of a reduction: the running results are found first."""
    writer = tape.writer
    if op.xs[0].tile.shape[op.axis].is_one:
        for x, g in zip(op.xs, cotangents):
            if g is not None:
                kind = g.tile.with_shape(x.tile.shape)
                tape.add(x, writer.create(ExpandDims, kind, x=g, axes=(op.axis,)))
        return
    xs = tuple(tape.value(x) for x in op.xs)
    steps = tuple(Value(x.type, "", op.loc) for x in op.xs)
    (combine,) = Copies().clone(op).regions()
    scan = ScanWith(xs=xs, axis=op.axis, combine=combine, results=steps, loc=op.loc)
    writer.insert(scan)
    is_last = _is_first(writer, xs[0].tile, op.axis, reverse=True)
    spread: list[Value | None] = []
    for g, x in zip(cotangents, op.xs):
        wide = None if g is None else writer.spread(g, op.axis, x.tile.shape)
        zeros = None if wide is None else writer.full(wide.tile, 0.0)
        ends = zeros and wide and writer.apply("where", is_last, wide, zeros)
        spread.append(ends)
    _Adjoint(tape, replace(scan, xs=op.xs), steps).write(spread)


class _Adjoint:
    """Writes the adjoint of one scan."""

    def __init__(self, tape: Tape, op: ScanWith, results: Sequence[Value]) -> None:
        self._tape, self._op, self._writer = tape, op, tape.writer
        self._results = results
        dim = op.xs[0].tile.shape[op.axis]
        if len(dim.factors) > 1:
            raise tape.refuse(op, "a scan along several axes in one has no derivative")
        self._places = [i for i, x in enumerate(op.xs) if x.tile.dtype.is_float]
        wide = any(op.xs[i].tile.dtype.bits == F64.bits for i in self._places)
        self._dtype: DType = F64 if wide else F32

    def write(self, cotangents: Sequence[Value | None]) -> None:
        """Add to the cotangents of the operands."""
        op, writer = self._op, self._writer
        if op.xs[0].tile.shape[op.axis].is_one:
            # The only element is the result.
            for x, g in zip(op.xs, cotangents):
                if g is not None:
                    self._tape.add(x, g)
            return
        zeros = writer.full(op.xs[0].tile.with_dtype(self._dtype), 0.0)
        given = [cotangents[i] for i in self._places]
        vector = [zeros if g is None else writer.cast(g, self._dtype) for g in given]
        left, right = self._slopes()
        back = 1 if not op.reverse else -1
        # Row i has the slopes of all results on the left element i, one turn later.
        matrix: list[Row] = [
            [None if s is None else self._shifted(s, back) for s in column] for column in zip(*left)
        ]
        whole = self._solve(matrix, vector)
        is_first = _is_first(writer, zeros.tile, op.axis, reverse=op.reverse)
        for place, own, slopes in zip(self._places, whole, zip(*right)):
            x = op.xs[place]
            later = self._dotted(slopes, whole, zeros)
            found = writer.apply("where", is_first, own, later)
            self._tape.add(x, writer.cast(found, cotangent_dtype(x.tile.dtype)))

    def _slopes(self) -> tuple[list[Row], list[Row]]:
        """For each float result, its slopes on the left floats and on the right ones."""
        op, count = self._op, len(self._op.xs)
        xs = [self._tape.value(x) for x in op.xs]
        step = -1 if not op.reverse else 1
        before = [self._shifted(y, step) for y in self._results]
        lifted = _Lifted.of(self._writer, op.combine, (*before, *xs))
        rows = [lifted.slopes(self._writer, i, self._dtype) for i in self._places]
        left = [[row[i] for i in self._places] for row in rows]
        right = [[row[count + i] for i in self._places] for row in rows]
        return left, right

    def _shifted(self, x: Value, step: int) -> Value:
        """What stands one lane before, or after; at the ends it is not looked at."""
        writer, kind = self._writer, x.tile
        places = positions_along(writer, kind, self._op.axis)
        moved = writer.apply("add", places, writer.full(places.tile, step))
        if step < 0:
            index = writer.apply("maximum", moved, writer.full(moved.tile, 0))
        else:
            last = writer.reduce(places, self._op.axis, "max")
            index = writer.apply(
                "minimum", moved, writer.spread(last, self._op.axis, moved.tile.shape)
            )
        return writer.create(Gather, kind, x=x, index=index, axis=self._op.axis)

    def _solve(self, matrix: list[Row], vector: list[Value]) -> list[Value]:
        """What the maps add up to from the last turn on."""
        size = range(len(vector))
        if all(matrix[i][j] is None for i in size for j in size if i != j):
            lines = ((matrix[i][i], vector[i]) for i in size)
            return [v if a is None else self._run([a], [v])[0] for a, v in lines]
        zeros = self._writer.full(vector[0].tile, 0.0)
        dense = [zeros if entry is None else entry for row in matrix for entry in row]
        return self._run(dense, vector)

    def _run(self, matrix: list[Value], vector: list[Value]) -> list[Value]:
        loc, kind = self._op.loc, scalar(self._dtype)
        names = [*(["factor"] * len(matrix)), *(["total"] * len(vector))]
        args = [Value(kind, f"{name}_{side}", loc) for side in ("after", "own") for name in names]
        combine = _compose(args, len(vector))
        xs = (*matrix, *vector)
        results = tuple(Value(x.type, name, loc) for x, name in zip(xs, names))
        self._writer.insert(
            ScanWith(
                xs=xs,
                axis=self._op.axis,
                reverse=not self._op.reverse,
                combine=combine,
                results=results,
                loc=loc,
            )
        )
        return list(results[len(matrix) :])

    def _dotted(
        self, slopes: Sequence[Value | None], whole: Sequence[Value], zeros: Value
    ) -> Value:
        total: Value | None = None
        for slope, one in zip(slopes, whole):
            if slope is not None:
                part = self._writer.apply("mul", slope, one)
                total = part if total is None else self._writer.apply("add", total, part)
        return zeros if total is None else total


def _compose(args: Sequence[Value], size: int) -> Region:
    """Two linear maps as one: matrices row by row, then vectors, of the later turns and the own."""
    count = size * size
    half = count + size
    writer = TileWriter(lambda: args[0].loc)
    writer.open_region()

    def dotted(row: int, others: Sequence[Value], start: Value | None) -> Value:
        total = start
        for place, other in enumerate(others):
            part = writer.apply("mul", args[half + row * size + place], other)
            total = part if total is None else writer.apply("add", total, part)
        assert total is not None
        return total

    after = [args[i * size : (i + 1) * size] for i in range(size)]
    columns = list(zip(*after))
    matrix = [dotted(row, columns[place], None) for row in range(size) for place in range(size)]
    vector = [dotted(row, args[count:half], args[half + count + row]) for row in range(size)]
    writer.effect(Yield, values=(*matrix, *vector))
    return writer.close_region(tuple(args))


def _is_first(writer: TileWriter, kind: TileType, axis: int, *, reverse: bool) -> Value:
    """Where a scan begins; in reverse that is the last lane that counts."""
    if not reverse:
        places = positions_along(writer, kind, axis)
        return writer.apply("eq", places, writer.full(places.tile, 0))
    ones = writer.full(kind.with_dtype(I32), 1)
    fields = {"axis": axis, "kind": ReduceKind.SUM.value, "reverse": True}
    count = writer.create(Scan, ones.type, x=ones, **fields)
    return writer.apply("eq", count, ones)


@dataclass
class _Slopes:
    """A tape for the ops of a combination, of which only slopes are asked for."""

    writer: TileWriter
    active: set[Value]
    known: dict[Value, Operation]
    values: Mapping[Value, Value]
    found: dict[Value, Value] = field(default_factory=dict[Value, Value])

    def value(self, forward: Value) -> Value:
        """Arguments have tiles in their place; others stand for themselves."""
        return self.values.get(forward, forward)

    def is_active(self, forward: Value) -> bool:
        """Whether a value depends on floats that are combined."""
        return forward in self.active

    def is_saved(self, forward: Value) -> bool:
        """Never: combinations are computed again."""
        return False

    def definition(self, forward: Value) -> Operation | None:
        """The op that gives a value."""
        return self.known.get(forward)

    def add(self, forward: Value, cotangent: Value) -> None:
        """Add to a slope."""
        if forward in self.active:
            before = self.found.get(forward)
            total = cotangent if before is None else self.writer.apply("add", before, cotangent)
            self.found[forward] = total

    def refuse(self, op: Operation, reason: str) -> Exception:
        """Ops of combinations all have derivatives."""
        return NotImplementedError(f"{op.name}: {reason}")


@dataclass(frozen=True)
class _Lifted:
    """The ops of a combination on whole tiles."""

    args: Mapping[Value, Value]
    """Values that stand for the arguments, one each, though two may be the same tile."""
    ops: tuple[Operation, ...]
    yielded: tuple[Value, ...]

    @staticmethod
    def of(writer: TileWriter, combine: Region, args: tuple[Value, ...]) -> _Lifted:
        """Write them."""
        shape = args[0].tile.shape
        tiles = {arg.like(): arg for arg in args}
        values = dict(zip(combine.args, tiles))
        ops: list[Operation] = []
        for op in combine.ops:
            if isinstance(op, Yield):
                continue
            wide = op.result.like(op.result.tile.with_shape(shape))
            moved = replace(op.with_operands(lambda v: values.get(v, v)), results=(wide,))
            writer.insert(moved.with_operands(lambda v: tiles.get(v, v)))
            values[op.result] = wide
            ops.append(moved)
        return _Lifted(tiles, tuple(ops), tuple(values[v] for v in combine.yielded))

    def slopes(self, writer: TileWriter, place: int, dtype: DType) -> Row:
        """The slopes of one result on each argument."""
        active = {arg for arg in self.args if arg.tile.dtype.is_float}
        for op in self.ops:
            if op.result.tile.dtype.is_float and active.intersection(op.operand_values()):
                active.add(op.result)
        tape = _Slopes(writer, active, {op.result: op for op in self.ops}, self.args)
        result = self.yielded[place]
        tape.add(result, writer.full(result.tile.with_dtype(dtype), 1.0))
        for op in reversed(self.ops):
            g = tape.found.pop(op.result, None)
            if g is not None and not isinstance(op, Full):
                TILE_DERIVATIVES[type(op)](tape, op, g)
        found = [tape.found.get(arg) for arg in self.args]
        return [None if slope is None else writer.cast(slope, dtype) for slope in found]
