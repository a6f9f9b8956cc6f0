"""Branches in which a tile is known to be whole: then nothing there needs a mask for its end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilesmith.backends.triton.emission.axes import Axis
from tilesmith.backends.triton.emission.emitter import Emitter
from tilesmith.ir.ops.control_flow import If
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import BlockSize, Full
from tilesmith.ir.types import Value


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
