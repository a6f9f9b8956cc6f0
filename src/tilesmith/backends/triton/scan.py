"""The rule for running combinations along one axis."""

from __future__ import annotations

from tilesmith.backends.triton.elementwise import convert
from tilesmith.backends.triton.emit import Emitter
from tilesmith.backends.triton.expressions import call
from tilesmith.dtypes import F32, I32, DType
from tilesmith.ir.ops.reduction import ReduceKind
from tilesmith.ir.ops.scan import Scan

_FUNCTIONS = {ReduceKind.SUM: "tl.cumsum", ReduceKind.PROD: "tl.cumprod"}
_COMBINES = {ReduceKind.MAX: "_nan_max", ReduceKind.MIN: "_nan_min"}


def emit_scan(emitter: Emitter, op: Scan) -> None:
    """Combine each lane with those before it along the axis."""
    dtype = op.x.tile.dtype
    wide = _accumulated(dtype)
    x = convert(emitter.exact(op.x), dtype, wide)
    options = ["reverse=True"] if op.reverse else []
    if op.reduction in _FUNCTIONS:
        result = call(_FUNCTIONS[op.reduction], x, op.axis, *options)
    else:
        combine = emitter.spelling.helper(_COMBINES[op.reduction])
        result = call("tl.associative_scan", x, op.axis, combine, *options)
    emitter.define(op.result, convert(result.with_shape(op.result.tile.shape), wide, dtype))


def _accumulated(dtype: DType) -> DType:
    """Half floats combine in fp32, small integers in int32, which wraps like them."""
    if dtype.is_float:
        return F32 if dtype.is_low_precision_float else dtype
    return dtype if dtype.bits >= 32 else I32
