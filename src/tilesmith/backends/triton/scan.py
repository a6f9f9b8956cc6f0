"""The rule for running combinations along one axis."""

from __future__ import annotations

from tilesmith.backends.triton.elementwise import convert
from tilesmith.backends.triton.emit import Emitter
from tilesmith.backends.triton.expressions import call, subscript
from tilesmith.dtypes import F32, I32, DType
from tilesmith.ir.ops.reduction import ReduceKind, Scan

_FUNCTIONS = {ReduceKind.SUM: "tl.cumsum", ReduceKind.PROD: "tl.cumprod"}
_COMBINES = {ReduceKind.MAX: "_nan_max", ReduceKind.MIN: "_nan_min"}


def emit_scan(emitter: Emitter, op: Scan) -> None:
    """Combine each lane with those before it along the axis."""
    dtype = op.x.tile.dtype
    wide = _accumulated(dtype)
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
    whole = subscript(result.with_shape(kept), ones, shape) if ones else result.with_shape(shape)
    emitter.define(op.result, convert(whole, wide, dtype))


def _accumulated(dtype: DType) -> DType:
    """Half floats combine in fp32, small integers in int32, which wraps like them."""
    if dtype.is_float:
        return F32 if dtype.is_low_precision_float else dtype
    return dtype if dtype.bits >= 32 else I32
