"""Rules for ops that combine lanes: matrix products, reductions and scans.

The input precision of a product is always written out.
"""

from __future__ import annotations

from tilesmith.analysis.product_operands import least_contracted
from tilesmith.backends.source_writer import SourceWriter
from tilesmith.backends.triton.emission.axes import expand
from tilesmith.backends.triton.emission.emitter import Emitter, Rules
from tilesmith.backends.triton.emission.spelling import Expr, NamePool, call, literal, triton_dtype
from tilesmith.backends.triton.ops.elementwise import convert
from tilesmith.backends.triton.optimizations import turned_products
from tilesmith.backends.triton.workarounds.loop_ends import is_alone
from tilesmith.backends.triton.workarounds.special_values import narrowed
from tilesmith.dtypes import BF16, BOOL, F8E4M3, F8E5M2, F16, F32, F64, I8, I32, DType
from tilesmith.ir.operation import Region
from tilesmith.ir.ops.elementwise import Elementwise
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.reduction import Reduce, ReduceKind, ReduceWith, Scan, ScanWith
from tilesmith.ir.types import ONE, Shape, TileType, Value
from tilesmith.targets import Target

_DOT_DTYPES = (F16, BF16, F32, F64, F8E4M3, F8E5M2, I8)


def _emit_dot(emitter: Emitter, op: Dot) -> None:
    """One matrix product, by Triton's own where it takes these tiles."""
    # The type both operands are multiplied in.
    lhs, rhs = op.lhs.tile.dtype, op.rhs.tile.dtype
    operand = F64 if op.result.tile.dtype == F64 else lhs if lhs == rhs else None
    if operand in _DOT_DTYPES and _fills_instruction(emitter, op):
        product, dtype = _dot(emitter, op, operand)
    else:
        product, dtype = _sum_of_products(emitter, op)
    emitter.define(op.result, convert(product, dtype, op.result.tile.dtype))


def _fills_instruction(emitter: Emitter, op: Dot) -> bool:
    contracted = emitter.schedule.physical(op.lhs.tile.shape[-1])
    # A single column is repeated over the lanes of a matrix instruction, and a later sum over it
    # would count the copies.
    has_lines = not any(dim.is_one for dim in op.result.tile.shape[-2:])
    return has_lines and contracted >= least_contracted(op, emitter.uses.defining)


def _precision(op: Dot, target: Target) -> str:
    """The precision asked for; AMD rounds fp32 operands on gfx942 only and never splits them."""
    is_known = target.kind != "hip" or (op.precision == "tf32" and target.arch == "gfx942")
    return op.precision if is_known else "ieee"


def _dot(emitter: Emitter, op: Dot, operand: DType) -> tuple[Expr, DType]:
    result = op.result.tile.dtype
    # Triton accumulates in the result's type, where there is such an instruction.
    accumulated = I32 if operand.is_integer else result if result in (F32, F16, F64) else F32
    # A wider integer accumulator would not survive the way through 32 bits.
    fuses = op.acc is not None and not (operand.is_integer and result != I32)
    arguments = [_converted(emitter, value, operand) for value in (op.lhs, op.rhs)]
    inside, schedule = emitter.uses.defining, emitter.schedule
    if turned_products.comes_from_registers(op, inside, schedule):
        arguments[0] = turned_products.computed(arguments[0])
    if op.acc is not None and fuses:
        arguments.append(convert(emitter.exact(op.acc), result, accumulated))
    options = [f'input_precision="{_precision(op, schedule.target)}"']
    if accumulated != F32:
        options.append(f"out_dtype={triton_dtype(accumulated)}")
    product = call("tl.dot", *arguments, *options, shape=op.result.tile.shape)
    if turned_products.leaves_registers_in_flight(op, inside, schedule, emitter.facts.identities):
        product = turned_products.awaited(product, accumulated)
    if op.acc is None or fuses:
        return product, accumulated
    return emitter.exact(op.acc).infix("+", convert(product, accumulated, result)), result


def _sum_of_products(emitter: Emitter, op: Dot) -> tuple[Expr, DType]:
    """``sum(lhs[..., :, None, :] * rhs^T[..., None, :, :], -1)``, for small or unusual tiles.

    The contracted axis stands last: a sum of products over the axis between the two others is what
    Triton takes for a matrix product again, whatever its size and precision.
    """
    result = op.result.tile.dtype
    dtype = result.computed
    rank = op.lhs.tile.rank
    if op.lhs.tile.shape[-1].is_one:
        left, right = (_converted(emitter, x, dtype) for x in (op.lhs, op.rhs))
        total = left.infix("*", right)
        return _added(emitter, op, total, dtype)
    left = _widened(_converted(emitter, op.lhs, dtype), op.lhs.tile.shape, rank - 1)
    *batch, k, n = op.rhs.tile.shape
    order = (*range(rank - 2), rank - 1, rank - 2)
    columns = call("tl.permute", _converted(emitter, op.rhs, dtype), order, shape=(*batch, n, k))
    if rank == 2 and n.is_one:
        # Without an axis for the one column, tiles stay in the layout that they are loaded in.
        rows = op.result.tile.shape[:1]
        sums = call("tl.sum", _converted(emitter, op.lhs, dtype).infix("*", columns), 1, shape=rows)
        return _added(emitter, op, sums.subscript((1,), (*rows, ONE)), dtype)
    right = _widened(columns, (*batch, n, k), rank - 2)
    total = call("tl.sum", left.infix("*", right), rank, shape=op.result.tile.shape)
    return _added(emitter, op, total, dtype)


def _converted(emitter: Emitter, value: Value, dtype: DType) -> Expr:
    return convert(emitter.exact(value), value.tile.dtype, dtype)


def _added(emitter: Emitter, op: Dot, product: Expr, dtype: DType) -> tuple[Expr, DType]:
    if op.acc is None:
        return product, dtype
    return _converted(emitter, op.acc, dtype).infix("+", product), dtype


def _widened(expr: Expr, shape: Shape, axis: int) -> Expr:
    return expr.subscript((axis,), (*shape[:axis], ONE, *shape[axis:]))


_INTEGER_FUNCTIONS = {
    ReduceKind.MAX: "tl.max",
    ReduceKind.MIN: "tl.min",
    ReduceKind.ARGMAX: "tl.argmax",
    ReduceKind.ARGMIN: "tl.argmin",
}
_COMBINES = {
    ReduceKind.MAX: "_nan_max",
    ReduceKind.MIN: "_nan_min",
    ReduceKind.PROD: "_multiply",
    ReduceKind.ARGMAX: "_nan_argmax",
    ReduceKind.ARGMIN: "_nan_argmin",
}


def _emit_reduce(emitter: Emitter, op: Reduce) -> None:
    x, dtype = emitter.exact(op.x), op.x.tile.dtype
    kind = op.reduction
    if kind in (ReduceKind.ANY, ReduceKind.ALL):
        function = "tl.max" if kind is ReduceKind.ANY else "tl.min"
        flags = x if dtype.is_bool else x.infix("!=", literal(0.0 if dtype.is_float else 0))
        wide = call(function, convert(flags, BOOL, I32), op.axis)
        result, dtype = wide.infix("!=", literal(0)), op.result.tile.dtype
    elif kind is ReduceKind.SUM:
        x, axis = _unlike_a_product(emitter, x, op)
        result, dtype = _sum(x, axis, dtype, op.result.tile.dtype)
    elif kind.is_arg:
        result, dtype = _position(emitter, x, op), I32
    else:
        result, dtype = _extreme(emitter, x, op, dtype)
    whole = result.with_shape(op.result.tile.shape)
    emitter.define(op.result, narrowed(emitter, convert, whole, dtype, op.result.tile.dtype))


def _unlike_a_product(emitter: Emitter, x: Expr, op: Reduce) -> tuple[Expr, int]:
    """The operand and axis of a sum, so arranged that Triton does not take it for a product.

    It makes a tf32 product of ``sum(a[:, :, None] * b[None, :, :], 1)``, a wrong one where the axis
    is short.
    """
    source = emitter.uses.defining.get(op.x)
    is_product = isinstance(source, Elementwise) and source.fn == "mul"
    if op.x.tile.rank != 3 or op.axis != 1 or not is_product or not op.x.tile.dtype.is_float:
        return x, op.axis
    first, middle, last = op.x.tile.shape
    return call("tl.permute", x, (0, 2, 1), shape=(first, last, middle)), 2


def _sum(x: Expr, axis: int, dtype: DType, wanted: DType) -> tuple[Expr, DType]:
    accumulated = dtype.computed
    if not dtype.is_float and (dtype.bits < 32 or wanted.bits > dtype.bits):
        accumulated = wanted if wanted.bits >= 32 else I32
    return call("tl.sum", convert(x, dtype, accumulated), axis), accumulated


def _extreme(emitter: Emitter, x: Expr, op: Reduce, dtype: DType) -> tuple[Expr, DType]:
    kind = op.reduction
    if not dtype.is_float and kind is not ReduceKind.PROD:
        # Triton widens small integers to 32 bits first.
        return call(_INTEGER_FUNCTIONS[kind], x, op.axis), _carrier(dtype)
    accumulated = dtype.computed
    combine = emitter.spelling.helper(_COMBINES[kind])
    return call("tl.reduce", convert(x, dtype, accumulated), op.axis, combine), accumulated


def _position(emitter: Emitter, x: Expr, op: Reduce) -> Expr:
    kind = op.reduction
    if not op.x.tile.dtype.is_float:
        return call(_INTEGER_FUNCTIONS[kind], x, op.axis, "tie_break_left=True")
    shape = op.x.tile.shape
    lanes = call("tl.arange", 0, emitter.spelling.dim(shape[op.axis]), shape=(shape[op.axis],))
    index = expand(lanes, op.axis, len(shape))
    if len(shape) > 1:
        index = call("tl.broadcast_to", index, emitter.spelling.shape(shape))
    combine = emitter.spelling.helper(_COMBINES[kind])
    pair = call("tl.reduce", f"({x}, {index})", op.axis, combine)
    return Expr(f"{pair}[1]")


_FUNCTIONS = {ReduceKind.SUM: "tl.cumsum", ReduceKind.PROD: "tl.cumprod"}


def _emit_scan(emitter: Emitter, op: Scan) -> None:
    """Combine each lane with those before it along the axis."""
    if is_alone(emitter, op):
        emitter.define(op.result, emitter.expr(op.x))
        return
    dtype = op.x.tile.dtype
    wide = _carrier(dtype)
    shape = op.x.tile.shape
    ones = tuple(i for i, dim in enumerate(shape) if dim.is_one and i != op.axis)
    kept = tuple(dim for i, dim in enumerate(shape) if i not in ones)
    axis = op.axis - sum(one < op.axis for one in ones)
    x = convert(emitter.exact(op.x), dtype, wide)
    if ones:
        # Triton 3.6 cannot lay out scans of columns that a product reads too.
        x = call("tl.reshape", x, emitter.spelling.shape(kept), shape=kept)
    options = ["reverse=True"] if op.reverse else []
    if op.reduction in _FUNCTIONS:
        result = call(_FUNCTIONS[op.reduction], x, axis, *options)
    else:
        combine = emitter.spelling.helper(_COMBINES[op.reduction])
        result = call("tl.associative_scan", x, axis, combine, *options)
    whole = result.with_shape(kept).subscript(ones, shape) if ones else result.with_shape(shape)
    emitter.define(op.result, narrowed(emitter, convert, whole, wide, dtype))


def _emit_with(emitter: Emitter, op: ReduceWith | ScanWith) -> None:
    """``tl.reduce`` or ``tl.associative_scan`` with a function of its own."""
    if isinstance(op, ScanWith) and is_alone(emitter, op):
        for value, x in zip(op.results, op.xs):
            emitter.define(value, emitter.expr(x))
        return
    name = "tl.associative_scan" if isinstance(op, ScanWith) else "tl.reduce"
    options = ["reverse=True"] if isinstance(op, ScanWith) and op.reverse else []
    shape = op.xs[0].tile.shape
    valid = emitter.scope.mask(shape, (op.axis,)) if op.leaves_out_invalid_lanes else None
    if valid is not None:
        valid = emitter.spelling.conform(valid, TileType(BOOL, shape))
    function = _define_function(emitter, op.combine, is_flagged=valid is not None)
    xs = [convert(emitter.exact(x), x.tile.dtype, _carrier(x.tile.dtype)) for x in op.xs]
    if valid is not None:
        xs.append(convert(valid, BOOL, I32))
    listed = ", ".join(map(str, xs))
    result = call(name, f"({listed})" if len(xs) > 1 else listed, op.axis, function, *options)
    names = [emitter.spelling.names.fresh(emitter.name_hint(value)) for value in op.results]
    targets = [*names, "_"] if valid is not None else names
    emitter.assign(", ".join(targets), result)
    for value, variable in zip(op.results, names):
        dtype = value.tile.dtype
        held = Expr(variable, shape=value.tile.shape)
        if _carrier(dtype) == dtype and emitter.variables.find_name(value) is None:
            emitter.bind(value, variable)
        else:
            emitter.define(value, narrowed(emitter, convert, held, _carrier(dtype), dtype))


def _carrier(dtype: DType) -> DType:
    """Half floats combine in fp32, small integers in int32, which wraps like them."""
    if dtype.is_float:
        return dtype.computed
    return dtype if dtype.bits >= 32 else I32


def _define_function(emitter: Emitter, combine: Region, *, is_flagged: bool) -> str:
    spelling = emitter.spelling
    function = spelling.names.fresh("_combine")
    outside = emitter.writer, spelling.names
    emitter.writer, spelling.names = SourceWriter(has_origins=False), NamePool()
    params = [spelling.names.fresh(arg.name or "element") for arg in combine.args]
    half = len(params) // 2
    flags = [spelling.names.fresh(f"{side}_is_valid") for side in ("left", "right") if is_flagged]
    emitter.writer.line("@triton.jit")
    listed = [*params[:half], *flags[:1], *params[half:], *flags[1:]]
    with emitter.writer.block(f"def {function}", listed):
        for arg, name in zip(combine.args, params):
            emitter.alias(arg, convert(Expr(name), _carrier(arg.tile.dtype), arg.tile.dtype))
        emitter.region(combine)
        results = [_in_carrier(emitter, value) for value in combine.yielded]
        if is_flagged:
            results = _of_valid(emitter, results, list(zip(params[:half], params[half:])), flags)
        emitter.writer.line(f"return {', '.join(map(str, results))}")
    spelling.needs.definitions[emitter.writer.text()] = None
    emitter.writer, spelling.names = outside
    return function


def _in_carrier(emitter: Emitter, value: Value) -> Expr:
    expr = emitter.expr(value)
    if expr.is_untyped:
        expr = emitter.spelling.filled(expr, value.tile)
    return convert(expr, value.tile.dtype, _carrier(value.tile.dtype))


def _of_valid(
    emitter: Emitter, results: list[Expr], sides: list[tuple[str, str]], flags: list[str]
) -> list[Expr]:
    """The combination of two valid lanes, or the lane that is valid."""
    left, right = flags
    is_left = emitter.named("is_left", Expr(f"{left} != 0"))
    both = emitter.named("is_both", Expr(f"({left} & {right}) != 0"))
    chosen = [
        emitter.named("chosen", call("tl.where", both, result, call("tl.where", is_left, x, y)))
        for result, (x, y) in zip(results, sides)
    ]
    return [*chosen, Expr(f"{left} | {right}")]


RULES: Rules = {
    Dot: _emit_dot,
    Reduce: _emit_reduce,
    Scan: _emit_scan,
    ReduceWith: _emit_with,
    ScanWith: _emit_with,
}
