"""Rules for loops, branches and the positions they bind. Carried values keep one variable each."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tilesmith.backends.triton.emission.axes import Axis, start_name
from tilesmith.backends.triton.emission.emitter import Emitter, Rules
from tilesmith.backends.triton.emission.spelling import Expr, broadcast_shapes, call, literal
from tilesmith.backends.triton.emission.tile_ends import whole_axes
from tilesmith.backends.triton.emission.uses import is_expression
from tilesmith.backends.triton.ops.elementwise import convert
from tilesmith.backends.triton.workarounds.loop_ends import is_forward, tile_range
from tilesmith.backends.triton.workarounds.loop_limits import limited
from tilesmith.backends.triton.workarounds.moved_values import tell_apart
from tilesmith.backends.triton.workarounds.special_values import constant, neutral
from tilesmith.diagnostics.catalogue import InternalError
from tilesmith.dtypes import I32, I64
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import Grid, If, Loop, While, Yield
from tilesmith.ir.ops.indexing import Arange, BlockSize, Full, Mask, TileIndex
from tilesmith.ir.types import Dim, Value
from tilesmith.schedule.schedule import LoopOptions


def _emit_full(emitter: Emitter, op: Full) -> None:
    """A constant is written where it is used; Triton broadcasts it."""
    emitter.alias(op.result, constant(op.value, op.result.tile.dtype))


def _emit_tile_index(emitter: Emitter, op: TileIndex) -> None:
    """The indices of a tile, shared by all its users when the tile is that of an enclosing loop."""
    axis = emitter.scope.find(op.block)
    if axis is not None and axis.start_value is op.begin:
        expr = axis.indices(emitter.spelling)
    else:
        expr = emitter.expr(op.begin) + _lanes(emitter, op.result.tile.shape[0])
        expr = expr.with_shape(op.result.tile.shape)
    emitter.define(op.result, convert(expr, op.begin.tile.dtype, op.result.tile.dtype))


def _emit_arange(emitter: Emitter, op: Arange) -> None:
    """The lanes of an axis; those of slices are shared."""
    dim = op.result.tile.shape[0]
    is_slice = len(dim.factors) == 1 and not emitter.function.is_block(str(dim.factors[0]))
    lanes = (
        emitter.scope.slice_axis(dim).indices(emitter.spelling)
        if is_slice
        else _positions(emitter, dim)
    )
    emitter.define(op.result, convert(lanes, I32, op.result.tile.dtype))


def _positions(emitter: Emitter, dim: Dim) -> Expr:
    """The positions of the lanes of a merged axis, whose factors may each be padded."""
    lanes = _lanes(emitter, dim)
    total, below, counted = literal(0), 1, 1
    for number, factor in reversed(list(enumerate(dim.factors))):
        logical = emitter.schedule.symbols[factor] if isinstance(factor, str) else factor
        physical = emitter.schedule.physical(Dim.of(factor))
        digit = lanes if below == 1 else lanes // below
        digit = digit % physical if number else digit
        total = digit * counted + total
        below, counted = below * physical, counted * logical
    return lanes if below == counted else total


def _lanes(emitter: Emitter, dim: Dim) -> Expr:
    return call("tl.arange", 0, emitter.spelling.dim(dim), shape=(dim,))


def _emit_block_size(emitter: Emitter, op: BlockSize) -> None:
    name = emitter.spelling.block_name(op.block)
    emitter.alias(op.result, Expr(name, is_untyped=True))


def _emit_mask(emitter: Emitter, op: Mask) -> None:
    """Reset invalid lanes, or nothing when no lane can be invalid or the load did it already."""
    x = emitter.expr(op.x)
    mask = None
    if op not in emitter.facts.identities:
        mask = emitter.scope.mask(op.x.tile.shape, op.axes)
    if mask is None:
        emitter.define(op.result, x)
    elif x.constant is True and op.fill is False:
        emitter.define(op.result, mask)
    else:
        value = emitter.spelling.conform(x, op.x.tile) if x.is_untyped else x
        whole = broadcast_shapes(value.shape, mask.shape)
        fill = neutral(op.fill, op.x.tile.dtype)
        emitter.define(op.result, call("tl.where", mask, value, fill, shape=whole))


def _emit_part(emitter: Emitter, op: Operation) -> None:
    """Of what is emitted as a part: yields with the op around them, grids with the function."""
    raise InternalError(loc=op.loc, problem=f"a {op.name} in the wrong place")


def _assign_all(emitter: Emitter, pairs: Sequence[tuple[str, Expr]]) -> None:
    """Assign variables as if at once: none is overwritten while another still needs it."""
    pending = [(name, expr) for name, expr in pairs if str(expr) != name]
    while pending:
        for item in pending:
            others = [expr for other, expr in pending if other != item[0]]
            mention = re.compile(rf"\b{re.escape(item[0])}\b")
            if not any(mention.search(str(expr)) for expr in others):
                emitter.assign(*item)
                pending.remove(item)
                break
        else:
            name, expr = pending.pop(0)
            saved = emitter.spelling.names.fresh(f"next_{name}")
            emitter.assign(saved, expr)
            pending.append((name, Expr(saved)))


class _ResultVariables:
    """The variables of an op's results, which its regions assign."""

    def __init__(self, emitter: Emitter, op: Operation, names: Sequence[str]) -> None:
        self._emitter = emitter
        self._op = op
        self._names = names

    @staticmethod
    def of_carried(emitter: Emitter, op: Operation, init: Sequence[Value]) -> _ResultVariables:
        """Variables that hold the first of the carried values now."""
        names = [_carried_name(emitter, op, *pair) for pair in zip(op.results, init)]
        carried = _ResultVariables(emitter, op, names)
        carried.assign(init)
        tell_apart(emitter, names, op.regions()[-1])
        return carried

    def bind_arguments(self, region: Region) -> None:
        args = region.args[len(region.args) - len(self._names) :]
        for arg, name in zip(args, self._names):
            self._emitter.bind(arg, name)

    def assign(self, values: Sequence[Value]) -> None:
        exact = [self._emitter.exact(value) for value in values]
        _assign_all(self._emitter, list(zip(self._names, exact)))

    def emit(self, region: Region) -> None:
        """Emit a region; where possible what it yields is computed in the variables."""
        self.bind_arguments(region)
        for value, name in zip(region.yielded, self._names):
            self._emitter.variables.try_put(value, name, region)
        self._emitter.region(region)
        self.assign(region.yielded)

    def finish(self) -> None:
        """The op's results are what the variables hold afterwards."""
        for result, name in zip(self._op.results, self._names):
            self._emitter.bind(result, name)


def _carried_name(emitter: Emitter, op: Operation, result: Value, before: Value) -> str:
    variables = emitter.variables
    name = variables.find_name(result) or variables.try_continue(before, op)
    if name is None:
        carried = op.regions()[-1].args[-len(op.results) :]
        hint = result.name or before.name or carried[op.results.index(result)].name
        name = emitter.spelling.names.fresh(hint or emitter.name_hint(result))
    if variables.find_name(result) is None:
        variables.put(result, name)
    return name


def _emit_loop(emitter: Emitter, op: Loop) -> None:
    """One ``for`` per axis; the carried values go through all of them."""
    carried = _ResultVariables.of_carried(emitter, op, op.init)
    options = limited(emitter.schedule.loops.get(op.slot, LoopOptions()), [op.body])
    order = options.order if len(options.order) == op.rank else tuple(range(op.rank))
    _LoopEmission(emitter, op, options, carried).emit_axes(list(order), {})
    carried.finish()


class _LoopEmission:
    def __init__(
        self, emitter: Emitter, op: Loop, options: LoopOptions, carried: _ResultVariables
    ) -> None:
        self._emitter = emitter
        self._op = op
        self._options = options
        self._carried = carried
        steps = iter(op.steps)
        self._steps = [
            Expr(emitter.spelling.block_name(block), is_untyped=True)
            if block
            else emitter.expr(next(steps))
            for block in op.blocks
        ]

    def emit_axes(self, remaining: list[int], axes: dict[str, Axis]) -> None:
        """The remaining axes around the body; ``axes`` are those of blocks that are bound."""
        emitter, op = self._emitter, self._op
        if not remaining:
            with emitter.scope.binding(axes):
                self._carried.emit(op.body)
            return
        axis, *rest = remaining
        block, arg = op.blocks[axis], op.body.args[axis]
        variable = emitter.spelling.names.fresh(start_name(block, arg))
        header = self._range(axis)
        with emitter.writer.block(f"for {variable} in {header.text}", header.arguments):
            self._bind_start(axis, variable)
            bound = {block: emitter.axis(op, axis, emitter.expr(arg))} if block else {}
            self.emit_axes(rest, {**axes, **bound})
        emitter.spelling.names.release(variable)

    def _range(self, axis: int) -> Expr:
        step = self._steps[axis]
        begin = self._emitter.expr(self._op.begins[axis])
        end = self._emitter.expr(self._op.ends[axis])
        arguments = [begin, end, step]
        if step.constant == 1:
            arguments = [end] if begin.constant == 0 else [begin, end]
        if self._options.is_static:
            return call("tl.static_range", *arguments)
        is_safe = is_forward(self._emitter, self._op, axis)
        return tile_range(arguments, self._options, self._op.is_ordered, is_forward=is_safe)

    def _bind_start(self, axis: int, variable: str) -> None:
        """The region's argument is the loop variable, in the width the IR gives it."""
        emitter, op = self._emitter, self._op
        arg = op.body.args[axis]
        is_wide = any(_is_wide(emitter, value) for value in (op.begins[axis], op.ends[axis]))
        # A loop variable is a Python number under static_range and in the interpreter.
        expr = Expr(variable, is_untyped=True)
        if arg.tile.dtype.bits == (64 if is_wide else 32):
            emitter.alias(arg, expr)
        else:
            emitter.define(arg, convert(expr, I64 if is_wide else I32, arg.tile.dtype))


def _is_wide(emitter: Emitter, bound: Value) -> bool:
    """Whether Triton sees a 64-bit bound; literals have the width of their value."""
    constant = emitter.expr(bound).constant
    if constant is not None:
        return abs(constant) > I32.highest
    return bound.tile.dtype.bits == I64.bits


def _emit_if(emitter: Emitter, op: If) -> None:
    """Both arms assign the results; an arm that changes nothing is left out."""
    names = [_result_name(emitter, op, slot) for slot in range(len(op.results))]
    variables = _ResultVariables(emitter, op, names)
    arms = ((f"if {emitter.expr(op.condition)}", op.then), ("else", op.otherwise))
    for header, region in arms:
        known = whole_axes(emitter, op) if region is op.then else {}
        block = emitter.writer.block(header, optional=region is op.otherwise)
        with block, emitter.scope.binding(known):
            variables.emit(region)
    variables.finish()


def _result_name(emitter: Emitter, op: If, slot: int) -> str:
    variables = emitter.variables
    result = op.results[slot]
    name = variables.find_name(result)
    if name is None:
        # Usually the arm that was not written hands on the value from before.
        for region in (op.otherwise, op.then):
            name = name or _continued(emitter, op, region.yielded[slot])
        name = name or emitter.spelling.names.fresh(emitter.name_hint(result))
        variables.put(result, name)
    return name


def _continued(emitter: Emitter, op: If, before: Value) -> str | None:
    """The variable of a value from before the branch, if it holds the whole tile."""
    name = emitter.variables.try_continue(before, op)
    # A load may be written without axes it does not move along; a variable has one shape for all.
    is_whole = name is not None and emitter.expr(before).shape == before.tile.shape
    return name if is_whole else None


def _emit_while(emitter: Emitter, op: While) -> None:
    """A pure condition stands in the header; one that reads memory is computed before each turn."""
    carried = _ResultVariables.of_carried(emitter, op, op.init)
    # What the condition yields is no carried value: it must not take a variable of one.
    carried.bind_arguments(op.condition)
    if is_expression(op.condition):
        emitter.region(op.condition)
        header = str(emitter.expr(op.condition.yielded[0]))
    else:
        header = emitter.spelling.names.fresh("proceeds")
        _emit_condition(emitter, op, header)
    with emitter.writer.block(f"while {header}"):
        carried.emit(op.body)
        if not is_expression(op.condition):
            _emit_condition(emitter, op, header)
    carried.finish()


def _emit_condition(emitter: Emitter, op: While, name: str) -> None:
    emitter.region(op.condition)
    emitter.assign(name, emitter.exact(op.condition.yielded[0]))


RULES: Rules = {
    Full: _emit_full,
    TileIndex: _emit_tile_index,
    Arange: _emit_arange,
    BlockSize: _emit_block_size,
    Mask: _emit_mask,
    Grid: _emit_part,
    Loop: _emit_loop,
    While: _emit_while,
    If: _emit_if,
    Yield: _emit_part,
}
