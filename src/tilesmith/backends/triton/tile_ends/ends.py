"""Whether a tile ends where its tensor does: then the copy engine leaves out the same lanes."""

from __future__ import annotations

from tilesmith.analysis.affine import AffineIndex, find_affine
from tilesmith.backends.triton.emission.emitter import Emitter
from tilesmith.ir.ops.elementwise import Elementwise
from tilesmith.ir.ops.indexing import Full
from tilesmith.ir.types import Dim, Extent, Value


def ends_with_tensor(emitter: Emitter, affine: AffineIndex, size: Extent) -> bool:
    """Whether the lanes past the end of the tile are exactly those past the end of the tensor."""
    assert affine.dim is not None
    axis = emitter.scope.axis_of(affine.dim) if len(affine.dim.factors) == 1 else None
    if axis is None:
        return False
    if axis.start_value is None:
        return not affine.base and not affine.offset and affine.dim == Dim.of(size)
    first = find_affine(axis.start_value, emitter.uses.defining)
    if first is None or axis.end_value is None or affine.where != first.where:
        return False
    bounds = (axis.start_value, axis.end_value)
    return _is_size(emitter, axis.end_value, size) or _is_cut_at(emitter, axis.dim, bounds, size)


def _is_size(emitter: Emitter, value: Value, size: Extent) -> bool:
    op = emitter.uses.defining.get(value)
    if isinstance(op, Full):
        return op.value == size
    return isinstance(size, str) and value is emitter.function.find_parameter(size)


def _is_cut_at(emitter: Emitter, dim: Dim, bounds: tuple[Value, Value], size: Extent) -> bool:
    """Whether the end is ``min(x, size)``, with tiles that end at ``x`` if they reach so far."""
    op = emitter.uses.defining.get(bounds[1])
    if not isinstance(op, Elementwise) or op.fn != "minimum":
        return False
    others = [arg for arg in op.args if not _is_size(emitter, arg, size)]
    step = emitter.schedule.physical(dim)
    multiples = [emitter.multiples.of(value) % step for value in (bounds[0], *others)]
    return len(others) == 1 and not any(multiples)
