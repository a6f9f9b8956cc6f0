"""Whether a tile ends where its tensor does: then the copy engine leaves out the same lanes.

And in which branches a tile is known to be whole: nothing there needs a mask for its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilesmith.analysis.affine import AffineIndex, find_affine
from tilesmith.backends.triton.emission.axes import Axis
from tilesmith.backends.triton.emission.emitter import Emitter
from tilesmith.ir.ops.control_flow import If
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import BlockSize, Full
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


def whole_axes(emitter: Emitter, op: If) -> dict[str, Axis]:
    """Axes of which all lanes are there where a condition holds: ``begin + size <= end``."""
    found: dict[str, Axis] = {}
    for test in _conjuncts(emitter, op.condition):
        small, large = (_plain(emitter, value) for value in test.args)
        reach = emitter.uses.defining.get(small)
        if not isinstance(reach, Elementwise) or reach.fn != "add":
            continue
        start, size = (_plain(emitter, value) for value in reach.args)
        step = emitter.uses.defining.get(size)
        axis = emitter.scope.find(step.block) if isinstance(step, BlockSize) else None
        if axis is None or axis.start_value is not start or axis.end_value is None:
            continue
        if axis.is_partial and _is_same(emitter, large, axis.end_value):
            assert isinstance(step, BlockSize)
            found[step.block] = replace(axis, is_partial=False, _indices="", _mask="")
    return found


def _conjuncts(emitter: Emitter, condition: Value) -> Iterator[Elementwise]:
    op = emitter.uses.defining.get(condition)
    if isinstance(op, Elementwise) and op.fn == "and":
        for part in op.args:
            yield from _conjuncts(emitter, part)
    elif isinstance(op, Elementwise) and op.fn == "le":
        yield op


def _plain(emitter: Emitter, value: Value) -> Value:
    """A number before it is given more bits."""
    op = emitter.uses.defining.get(value)
    is_wider = isinstance(op, Cast) and op.x.tile.dtype.is_integer and not op.bitcast
    if isinstance(op, Cast) and is_wider and op.dtype.bits > op.x.tile.dtype.bits:
        return op.x
    return value


def _is_same(emitter: Emitter, one: Value, other: Value) -> bool:
    ops = [emitter.uses.defining.get(value) for value in (one, other)]
    constants = {op.value for op in ops if isinstance(op, Full)}
    both = all(isinstance(op, Full) for op in ops)
    return one is other or (both and len(constants) == 1)
