"""How tensors are indexed: consecutive along a tile, a whole dimension, one element, or anyhow."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Arange, BlockSize, TileIndex
from tilesmith.ir.ops.memory import Load
from tilesmith.ir.ops.shape import Broadcast, ExpandDims
from tilesmith.ir.types import ONE, Dim, Value
from tilesmith.schedule.facts.outline import Access, FunctionOutline, LoopAxis


@dataclass(frozen=True)
class IndexPattern:
    """How one tensor dimension is indexed.

    ``kind`` is ``tile`` (consecutive, from the begin of a tile), ``range`` (consecutive, a whole
    dimension), ``scalar`` or ``gather`` (anything else); ``dim`` is the tile axis it spans.
    """

    kind: str
    dim: Dim = ONE
    is_shifted: bool = False
    """Whether something is added, so that it need not begin at a multiple of the tile's size."""


LONGEST_SUBSCRIPT = 32
_OPERATORS = {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "truncdiv": "//", "mod": "%"}
SCALAR = IndexPattern("scalar")
GATHER = IndexPattern("gather")


def classify_index(outline: FunctionOutline, value: Value) -> IndexPattern:
    """What an index tile enumerates."""
    if value.tile.rank == 0:
        return SCALAR
    op = outline.definitions.get(value)
    if isinstance(op, (ExpandDims, Broadcast, Cast)):
        return classify_index(outline, op.x)
    if isinstance(op, (TileIndex, Arange)):
        kind = "tile" if isinstance(op, TileIndex) else "range"
        return IndexPattern(kind, op.result.tile.shape[0])
    if isinstance(op, Elementwise) and op.fn in ("add", "sub"):
        patterns = [classify_index(outline, arg) for arg in op.args]
        moved = [pattern for pattern in patterns if pattern.kind != "scalar"]
        is_shift = len(moved) == 1 and (op.fn == "add" or patterns[0] is moved[0])
        return replace(moved[0], is_shifted=True) if is_shift else GATHER if moved else SCALAR
    return GATHER


def subscript_text(outline: FunctionOutline, value: Value) -> str:
    """An index as the user would write it; ``?`` where it has no short form."""
    op = outline.definitions.get(value)
    if isinstance(op, TileIndex):
        return op.block
    if isinstance(op, Arange):
        return ":"
    constant = outline.find_constant(value)
    if constant is not None:
        return str(constant)
    if value.name:
        return _position_text(outline, value)
    if isinstance(op, (ExpandDims, Broadcast, Cast)):
        return subscript_text(outline, op.x)
    if isinstance(op, Elementwise) and op.fn in _OPERATORS:
        return _arithmetic_text(outline, op)
    return access_text(outline, op) if isinstance(op, Load) else "?"


def _arithmetic_text(outline: FunctionOutline, op: Elementwise) -> str:
    size, axis = outline.definitions.get(op.args[1]), find_loop_axis(outline, op.args[0])
    if axis is not None and isinstance(size, BlockSize) and size.block == axis.block:
        return f"{axis.block}.id" if op.fn in ("floordiv", "truncdiv") else "?"
    left, right = (subscript_text(outline, arg) for arg in op.args)
    text = f"{left} {_OPERATORS[op.fn]} {right}"
    is_readable = "?" not in text and ":" not in text and len(text) <= LONGEST_SUBSCRIPT
    return text if is_readable else "?"


def access_text(outline: FunctionOutline, op: Access) -> str:
    """An access as the user would write it."""
    subscripts = ", ".join(subscript_text(outline, index) for index in op.indices)
    return f"{op.tensor.name}[{subscripts}]"


def _position_text(outline: FunctionOutline, value: Value) -> str:
    """The name of a value; of a loop's own positions the tile's or the plain index's name."""
    axis = find_loop_axis(outline, value)
    if axis is None:
        return value.name
    return f"{axis.block}.begin" if axis.block else value.name.removesuffix("_begin")


def find_loop_axis(outline: FunctionOutline, value: Value) -> LoopAxis | None:
    """The loop axis whose position a value is, if it is one."""
    axes = (axis for axes in outline.axes.values() for axis in axes)
    return next((axis for axis in axes if axis.index is value), None)
