"""Where values go, lane by lane, and how tensors are indexed with them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeGuard

from tilesmith.ir import axis_roles as forms
from tilesmith.ir.axis_roles import Role
from tilesmith.ir.operation import Operation, Trait
from tilesmith.ir.ops.control_flow import Grid, Loop, Yield
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Arange, BlockSize, TileIndex
from tilesmith.ir.ops.memory import Load
from tilesmith.ir.ops.shape import Broadcast, ExpandDims
from tilesmith.ir.types import ONE, Dim, Value
from tilesmith.schedule.facts.outline import Access, FunctionOutline, LoopAxis

_ELEMENT_BY_ELEMENT = (
    forms.Kept, forms.Inserted, forms.Repeated, forms.Permuted, forms.Reshaped, forms.Joined,
    forms.Picked,
)  # fmt: skip
"""Forms in which an element of a result is made of one of each operand, known in advance which."""
Use = tuple[Operation, Value]
"""An op, and which of its operands is meant."""


def is_whole_view(op: Operation | None) -> TypeGuard[Operation]:
    """Whether an op hands on all elements of its operand, maybe converted or some of them reset."""
    if op is None or isinstance(op, Cast):
        return op is not None
    # What picks some elements (select) is no such view.
    return Trait.VIEW in op.traits and Role.INDEXED not in op.form.roles


class Dataflow:
    """Uses of the values of one function."""

    def __init__(self, outline: FunctionOutline) -> None:
        self._definitions = outline.definitions
        self._users: dict[Value, list[Operation]] = {}
        self._handed_over: dict[Value, list[Value]] = {}
        for site in outline.sites:
            for operand in site.op.operand_values():
                self._users.setdefault(operand, []).append(site.op)
            if not isinstance(site.op, Grid):
                self._note_yields(site.op)

    def _note_yields(self, op: Operation) -> None:
        for region in op.regions():
            for value, result in zip(region.yielded, op.results):
                self._handed_over.setdefault(value, []).append(result)

    def uses(self, value: Value) -> Iterator[Use]:
        """Where the value, or what is computed from it lane by lane, ends up."""
        waiting, seen = [value], {value}
        while waiting:
            current = waiting.pop()
            following = list(self._handed_over.get(current, ()))
            for op in self._users.get(current, ()):
                if isinstance(op.form, _ELEMENT_BY_ELEMENT):
                    following.append(op.result)
                elif isinstance(op, Loop) and current in op.init:
                    following.append(op.carried[op.init.index(current)])
                elif not isinstance(op, Yield):
                    yield op, current
            fresh = [item for item in following if item not in seen]
            seen.update(fresh)
            waiting.extend(fresh)

    def origin(self, value: Value) -> tuple[Operation | None, bool]:
        """The op behind casts, masks and changes of shape, and whether axes are in another order.

        None for a parameter or a value that a loop carries.
        """
        op, is_permuted = self._definitions.get(value), False
        while is_whole_view(op):
            is_permuted ^= isinstance(op.form, forms.Permuted)
            op = self._definitions.get(next(op.operand_values()))
        return op, is_permuted

    def name(self, value: Value) -> str:
        """What the user calls a value: its own name, or that of what it becomes or is made of."""
        if value.name:
            return value.name
        for after in (*self._handed_over.get(value, ()), *self._results_of_line(value)):
            if after.name:
                return after.name
        op = self._definitions.get(value)
        return self.name(next(op.operand_values())) if is_whole_view(op) else ""

    def _results_of_line(self, value: Value) -> list[Value]:
        """What the same line of the source makes of a value."""
        op = self._definitions.get(value)
        if op is None or not op.loc.line:
            return []
        users = self._users.get(value, ())
        return [
            u.result for u in users if isinstance(u.form, _ELEMENT_BY_ELEMENT) and u.loc == op.loc
        ]


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
    is_constant = outline.find_constant(value) is not None
    is_one = is_constant and all(outline.extent(d) == 1 for d in value.tile.shape)
    if value.tile.rank == 0 or is_one:
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
