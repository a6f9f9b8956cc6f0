"""New device values: ``hl.zeros``, ``hl.full``, ``hl.arange`` and torch's factory functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tilesmith.diagnostics import errors
from tilesmith.diagnostics.wording import kind_of
from tilesmith.dtypes import F32, DType
from tilesmith.frontend.emission import apply, as_tile, broadcast_to, cast, number_dtype
from tilesmith.frontend.emission import full as emit_full
from tilesmith.frontend.indexing import arange as emit_arange
from tilesmith.frontend.sessions import current_tracer
from tilesmith.frontend.shape import as_dim, as_shape
from tilesmith.frontend.tile import Tile
from tilesmith.frontend.tracer import locate
from tilesmith.frontend.values import Scalar, TileValue
from tilesmith.interpreter.torch_dtypes import from_torch
from tilesmith.ir.types import Shape

Rule = Callable[..., Any]


def shape_of(shape: Any, function: str) -> Shape:
    """The dimensions of a shape given as a list of sizes."""
    if not isinstance(shape, (list, tuple)):
        raise errors.InvalidArgumentKind(
            function=function,
            problem=f"the shape is {kind_of(shape)}, expected a list of sizes",
            loc=locate(),
        )
    return as_shape(tuple(shape), function)


def full(
    shape: Any, value: Any, dtype: torch.dtype | None = torch.float32, device: Any = None
) -> TileValue:
    """A device tensor filled with ``value`` (a number, a symbolic number or a 0-d value).

    Example:
        ``m = hl.full([t], float("-inf"), dtype=torch.float32)``
    """
    current_tracer("hl.full")
    dims = shape_of(shape, "hl.full")
    if isinstance(value, TileValue):
        element = from_torch(dtype) if dtype is not None else value.tile.dtype
        return broadcast_to(cast(as_tile(value), element), dims)
    element = from_torch(dtype) if dtype is not None else number_dtype(value)
    return emit_full(value, element, dims)


def zeros(shape: Any, dtype: torch.dtype = torch.float32, device: Any = None) -> TileValue:
    """A device tensor of zeros; ``[]`` gives a 0-d one.

    Example:
        ``acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)``
    """
    current_tracer("hl.zeros")
    return emit_full(0, from_torch(dtype), shape_of(shape, "hl.zeros"))


def arange(
    *bounds: Any, dtype: torch.dtype | None = None, device: Any = None, step: Any = 1
) -> TileValue:
    """``[start, end)`` as an integer tensor; the length must be known or a block size.

    Example:
        ``k = hl.arange(tile.block_size)``
    """
    current_tracer("hl.arange")
    start, end = (0, bounds[0]) if len(bounds) == 1 else bounds[:2]
    step = bounds[2] if len(bounds) > 2 else step
    result = emit_arange(as_dim(_length(start, end, step), "hl.arange"))
    if step != 1:
        result = apply("mul", result, step)
    if not (isinstance(start, int) and start == 0):
        result = apply("add", result, start)
    return result if dtype is None else cast(result, from_torch(dtype))


def _length(start: Any, end: Any, step: Any) -> Any:
    if isinstance(end, Tile):
        return end
    if all(isinstance(bound, int) for bound in (start, end, step)):
        return len(range(start, end, step))
    if isinstance(end, Scalar) and isinstance(start, int) and start == 0 and step == 1:
        return end
    if isinstance(end, Scalar) and end.sum_of is not None and step == 1:
        left, right = end.sum_of
        same = (
            isinstance(start, TileValue)
            and isinstance(left, TileValue)
            and left.value is start.value
        )
        if same:
            return right
    raise errors.ShapeSpecializingCall(value="the length of hl.arange", loc=locate())


def _dtype_of(like: Any, dtype: torch.dtype | None) -> DType:
    return from_torch(dtype if dtype is not None else like.dtype)


def like(value: Any) -> Rule:
    """``zeros_like`` and its relatives; host tensors serve for shape and type."""

    def rule(x: Any, *, dtype: torch.dtype | None = None, **_: Any) -> TileValue:
        shape = as_shape(tuple(x.shape), "full_like")
        return emit_full(value, _dtype_of(x, dtype), shape)

    return rule


def full_like(x: Any, fill_value: Any, *, dtype: torch.dtype | None = None, **_: Any) -> TileValue:
    """``torch.full_like``."""
    element = _dtype_of(x, dtype)
    shape = as_shape(tuple(x.shape), "full_like")
    if isinstance(fill_value, TileValue):
        return broadcast_to(cast(fill_value, element), shape)
    return emit_full(fill_value, element, shape)


def factory(value: Any) -> Rule:
    """``torch.zeros`` and its relatives."""

    def rule(*size: Any, dtype: torch.dtype | None = None, **_: Any) -> TileValue:
        element = F32 if dtype is None else from_torch(dtype)
        return emit_full(value, element, as_shape(size, "torch factory"))

    return rule


def new(value: Any) -> Rule:
    """``x.new_zeros`` and its relatives."""

    def rule(x: Any, *size: Any, dtype: torch.dtype | None = None, **_: Any) -> TileValue:
        return emit_full(value, _dtype_of(x, dtype), as_shape(size, "new_*"))

    return rule


def new_full(
    x: Any, size: Any, fill_value: Any, *, dtype: torch.dtype | None = None, **_: Any
) -> TileValue:
    """``x.new_full``."""
    return emit_full(fill_value, _dtype_of(x, dtype), as_shape((size,), "new_full"))


def scalar_tensor(value: Any, *, dtype: torch.dtype | None = None, **_: Any) -> TileValue:
    """``torch.tensor(number)``."""
    if isinstance(value, TileValue):
        return value if dtype is None else cast(value, from_torch(dtype))
    if not isinstance(value, (int, float)):
        raise errors.UnsupportedTorchArgument(
            name="torch.tensor", argument=kind_of(value), loc=locate()
        )
    return emit_full(value, number_dtype(value) if dtype is None else from_torch(dtype))


FACTORIES: dict[str, Rule] = {
    "zeros": factory(0), "ones": factory(1), "empty": factory(0),
    "full": lambda size, fill_value, **kw: full(size, fill_value, kw.get("dtype")),
    "arange": arange, "tensor": scalar_tensor,
}  # fmt: skip
CREATION: dict[str, Rule] = {
    **FACTORIES,
    "zeros_like": like(0), "ones_like": like(1), "empty_like": like(0), "full_like": full_like,
    "new_zeros": new(0), "new_ones": new(1), "new_empty": new(0), "new_full": new_full,
}  # fmt: skip
