"""Rules for combinations of the user's own: each becomes a function of the emitted module.

Elements travel in carriers that shuffle well on every device: half floats in fp32, bools and small
integers in int32. Inside the function they have their own types. Where an invalid lane could meet
a valid one, a flag travels with each lane and only valid ones combine.
"""

from __future__ import annotations

from tilesmith.backends.source_writer import SourceWriter
from tilesmith.backends.triton.elementwise import convert
from tilesmith.backends.triton.emit import Emitter
from tilesmith.backends.triton.expressions import Expr, call
from tilesmith.backends.triton.names import NamePool
from tilesmith.dtypes import BOOL, F32, I32, DType
from tilesmith.ir.operation import Region
from tilesmith.ir.ops.reduction import ReduceWith, ScanWith
from tilesmith.ir.types import TileType
from tilesmith.ir.values import Value


def emit_reduce_with(emitter: Emitter, op: ReduceWith) -> None:
    """``tl.reduce`` with a function of its own."""
    _emit(emitter, op, "tl.reduce", [])


def emit_scan_with(emitter: Emitter, op: ScanWith) -> None:
    """``tl.associative_scan`` with a function of its own."""
    _emit(emitter, op, "tl.associative_scan", ["reverse=True"] if op.reverse else [])


def _emit(emitter: Emitter, op: ReduceWith | ScanWith, name: str, options: list[str]) -> None:
    valid = _valid_lanes(emitter, op) if op.leaves_out_invalid_lanes else None
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
        if _carrier(dtype) == dtype and emitter.variables.find(value) is None:
            emitter.bind(value, variable)
        else:
            emitter.define(value, convert(held, _carrier(dtype), dtype))


def _carrier(dtype: DType) -> DType:
    if dtype.is_float:
        return F32 if dtype.is_low_precision_float else dtype
    return dtype if dtype.bits >= 32 else I32


def _valid_lanes(emitter: Emitter, op: ReduceWith | ScanWith) -> Expr | None:
    shape = op.xs[0].tile.shape
    mask = emitter.masks.of_shape(shape, (op.axis,))
    return None if mask is None else emitter.spelling.conform(mask, TileType(BOOL, shape))


def _define_function(emitter: Emitter, combine: Region, *, is_flagged: bool) -> str:
    """Write the function of a combination; gives its name."""
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
    names = emitter.spelling.names
    is_left, both = (names.fresh(hint) for hint in ("is_left", "is_both"))
    emitter.writer.line(f"{is_left} = {left} != 0")
    emitter.writer.line(f"{both} = ({left} & {right}) != 0")
    chosen: list[Expr] = []
    for result, (x, y) in zip(results, sides):
        chosen.append(Expr(names.fresh("chosen")))
        single = call("tl.where", is_left, x, y)
        emitter.assign(str(chosen[-1]), call("tl.where", both, result, single))
    return [*chosen, Expr(f"{left} | {right}")]
