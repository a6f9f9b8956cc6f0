"""Pointer arithmetic of an indexed access, in elements, 32 bits wide where that is enough."""

from __future__ import annotations

from collections.abc import Sequence

from tilesmith.backends.triton.elementwise import convert
from tilesmith.backends.triton.emit import Emitter
from tilesmith.backends.triton.expressions import (
    Expr,
    add,
    binary,
    broadcast_shapes,
    call,
    literal,
    method,
    multiply,
)  # fmt: skip
from tilesmith.backends.triton.joined_indices import index_terms
from tilesmith.backends.triton.masks import conjunction
from tilesmith.backends.triton.names import triton_dtype
from tilesmith.dtypes import I64
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.ir.types import Shape
from tilesmith.ir.values import Value


def offset(emitter: Emitter, tensor: Value, indices: Sequence[Value | None]) -> Expr:
    """The element offset of every accessed lane; dimensions without an index add nothing."""
    total = literal(0)
    for index, stride in index_terms(tensor, indices, emitter.uses.defining):
        term = _wide_enough(emitter.expr(index), index, stride == 1, tensor.tensor.wide)
        total = add(total, multiply(term, emitter.spelling.extent(stride)))
    return total


def _wide_enough(expr: Expr, index: Value, is_unit: bool, is_wide: bool) -> Expr:
    """The index in 64 bits where its product with the stride may need them."""
    if not is_wide or is_unit or expr.constant is not None or index.tile.dtype.bits == I64.bits:
        return expr
    return convert(expr, index.tile.dtype, I64)


def pointer(emitter: Emitter, op: Load | Store | Atomic) -> Expr:
    """The address of every accessed lane."""
    base = emitter.expr(op.tensor)
    if not isinstance(op, Atomic) and op.bases is not None:
        kind = f"tl.pointer_type({triton_dtype(op.tensor.tensor.dtype)})"
        base = method(emitter.exact(op.bases), "to", kind)
    elements = offset(emitter, op.tensor, op.indices)
    return base if elements.constant == 0 else binary("+", base, elements)


def access_mask(emitter: Emitter, op: Load | Store | Atomic, shape: Shape) -> Expr | None:
    """The lanes an access touches; None for all."""
    implicit = emitter.masks.of_shape(shape, emitter.facts.unbounded_axes(op, len(shape)))
    given = None if op.mask is None else emitter.expr(op.mask)
    if given is not None and given.constant is True:
        given = None
    return conjunction([mask for mask in (implicit, given) if mask is not None])


def cover(emitter: Emitter, address: Expr, shape: Shape) -> Expr:
    """Addresses repeated along the axes of ``shape`` that they do not have yet."""
    whole = broadcast_shapes(address.shape, shape)
    if not shape or address.shape == whole:
        return address
    return call("tl.broadcast_to", address, emitter.spelling.shape(whole), shape=whole)
