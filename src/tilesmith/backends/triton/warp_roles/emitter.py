"""The walk over the ops that a group of warps runs: as plain Triton, with layouts, in Gluon.

Rules of ops are those of the backend. What differs is here: rows are those of the group, tiles of
indices are written where they are used, since each use may have another layout, and a value that
lies elsewhere in registers is converted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from typing_extensions import override

from tilesmith.backends.triton.emission.axes import Axis, AxisScope
from tilesmith.backends.triton.emission.emitter import Emitter, Rules
from tilesmith.backends.triton.emission.spelling import Expr, Spelling, axis_suffix, call
from tilesmith.backends.triton.ops.elementwise import convert
from tilesmith.backends.triton.warp_roles.layouts import WARPS_PER_GROUP, Layout, without_axes
from tilesmith.backends.triton.warp_roles.single_pointers import GluonSpelling
from tilesmith.dtypes import I32, I64
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Region, Trait
from tilesmith.ir.ops.control_flow import Grid, Loop
from tilesmith.ir.ops.memory import Store
from tilesmith.ir.ops.reduction import Reduce
from tilesmith.ir.ops.shape import ExpandDims
from tilesmith.ir.traversal import walk_function
from tilesmith.ir.types import Dim, TileType, Value
from tilesmith.schedule.schedule import Schedule

ROWS, GROUP = "ROWS", "group"
"""Rows of a group, and which one it is: names in the emitted module."""
RESERVED_NAMES = (
    *(ROWS, GROUP, "gl", "gluon", "tma", "mbarrier", "turns", "turn", "step", "STAGES", "GROUPS"),
    *("fence_async_shared", "warpgroup_mma", "warpgroup_mma_wait"),
    *("begin", "end", "part", "ready", "piece", "full_from", "full_to", "following"),
)

_GLUON_NAMES = (
    *("abs", "arange", "bfloat16", "cdiv", "ceil", "constexpr", "cos", "div_rn", "erf", "exp"),
    *("exp2", "float16", "float32", "float64", "float8e4nv", "float8e5", "floor", "fma", "full"),
    *("int1", "int16", "int32", "int64", "int8", "load", "log", "log2", "max", "maximum", "min"),
    *("minimum", "num_programs", "pointer_type", "program_id", "reduce", "rsqrt", "sin", "sqrt"),
    *("sqrt_rn", "static_range", "store", "sum", "uint16", "uint32", "uint64", "uint8", "umulhi"),
    *("where", "zeros"),
)
"""What Gluon has under the same name; the rest of ``triton.language`` works in it as it is."""
_TO_GLUON = re.compile(rf"\btl\.({'|'.join(_GLUON_NAMES)})\b")


def num_groups(schedule: Schedule) -> int:
    """Groups of four warps that compute; one more warp copies."""
    return schedule.num_warps // WARPS_PER_GROUP


_RENAMED_IN = (3, 9)
_NEW_NAMES = {
    "tma.async_copy_global_to_shared": "tma.async_load",
    "tma.async_copy_shared_to_global": "tma.async_store",
}


def in_gluon(text: str, triton_version: tuple[int, int]) -> str:
    """Emitted Triton with the names that this version of Gluon has."""
    text = _TO_GLUON.sub(r"gl.\1", text).replace("tl.range(", "range(")
    for old, new in _NEW_NAMES.items() if triton_version >= _RENAMED_IN else ():
        text = text.replace(old, new)
    return text


@dataclass(frozen=True)
class Part:
    """Some columns of a tile: a block of their own."""

    block: str
    size: int
    offset: int
    begin: Value
    """The first column."""


Parts = Mapping[str, tuple[Part, ...]]
"""By the block that they are parts of."""


@dataclass
class _InlineAxis(Axis):
    """An axis whose indices are written at each use: every use may have its own layout."""

    offset: str = ""
    """What the group adds to the first index."""
    order: Callable[[Expr], Expr] = lambda lanes: lanes
    """Which index each lane has, counted from there."""

    @override
    def indices(self, spelling: Spelling) -> Expr:
        start = self.start if not self.offset else self.start + Expr(self.offset)
        lanes = self.order(call("tl.arange", 0, spelling.dim(self.dim)))
        return (start + lanes).with_shape((self.dim,))

    @override
    def mask(self, spelling: Spelling) -> Expr:
        return self.indices(spelling).infix("<", self.end)


class InlineScope(AxisScope):
    """The axes at the place being emitted, those of parts among them."""

    parts: Parts

    @override
    @contextmanager
    def binding(self, axes: dict[str, Axis]) -> Iterator[None]:
        parts = {
            part.block: _of_part(axes[block], part)
            for block, found in self.parts.items()
            for part in found
            if block in axes
        }
        with super().binding({**axes, **parts}):
            yield

    @override
    def is_partial(self, dim: Dim) -> bool:
        return not self.has_narrow_starts and super().is_partial(dim)

    @override
    def slice_axis(self, dim: Dim) -> Axis:
        found = super().slice_axis(dim)
        return _inline(found, "")


def _inline(axis: Axis, offset: str) -> _InlineAxis:
    return _InlineAxis(**vars(axis), offset=offset)


def _of_part(axis: Axis, part: Part) -> Axis:
    return replace(
        axis,
        dim=Dim.of(part.block),
        suffix=axis_suffix(part.block),
        start=axis.start + part.offset,
        start_value=part.begin,
    )


class _RowSpelling(GluonSpelling):
    """Tiles have the rows of one group; the block itself has those of all groups."""

    def __init__(self, function: Function, schedule: Schedule, rows: str, num_rows: int) -> None:
        super().__init__(function, schedule)
        self._rows, self._num_rows = rows, num_rows
        self.names.reserve(RESERVED_NAMES)

    @override
    def block_name(self, block: str) -> str:
        name = super().block_name(block)
        if block == self._rows:
            self.needs.constants[name] = self._num_rows
        return name

    @override
    def _factor(self, factor: int | str) -> str:
        return ROWS if factor == self._rows else super()._factor(factor)


class RoleEmitter(Emitter):
    """The state of emitting what one role runs."""

    def __init__(
        self,
        function: Function,
        schedule: Schedule,
        rules: Rules,
        rows: str,
        layouts: Mapping[Value, Layout],
    ) -> None:
        # What is known of tiles that may be partial is about those of all groups together.
        super().__init__(function, schedule, rules)
        self.rows = rows
        """The block whose rows groups share."""
        self.programs = 1  # that share a tile
        self.tile_body: Callable[[], None] | None = None
        """Emits what the role runs for one tile of the grid."""
        self.lane_orders: dict[str, Callable[[Expr], Expr]] = {}
        """Blocks whose lanes do not have indices one after the other."""
        self.guarded: dict[Operation, Callable[[Emitter, Any], None]] = {}
        """Ops that are emitted in another way than by the rule of their class."""
        self._layouts = layouts
        self._wanted: Layout | None = None
        num_rows = schedule.symbols[rows]
        own = {**schedule.symbols, rows: num_rows // num_groups(schedule)}
        self.schedule = replace(schedule, symbols=own)
        self.spelling = _RowSpelling(function, self.schedule, rows, num_rows)
        self.scope = InlineScope(self.spelling, self.writer)
        self.scope.parts = {}
        self.scope.reserve_slices()
        # Tiles of indices and constants have no layout that they could keep in a variable.
        for op in walk_function(function):
            is_free = Trait.PURE in op.traits and not any(v in layouts for v in op.results)
            if is_free and not op.regions():
                self.uses.inlined.update(v for v in op.results if v.tile.rank)

    @override
    def axis(self, op: Grid | Loop, position: int, start: Expr) -> Axis:
        is_shared = op.blocks[position] == self.rows
        offset = f"{GROUP} * {ROWS}" if is_shared else ""
        found = _inline(super().axis(op, position, start), offset)
        found.order = self.lane_orders.get(op.blocks[position] or "", found.order)
        return found

    @override
    def region(self, region: Region) -> None:
        grids = [op for op in self.function.body.ops if isinstance(op, Grid)]
        if self.tile_body is None or all(region is not op.body for op in grids):
            super().region(region)
        else:
            self.tile_body()

    @override
    def op(self, op: Operation) -> None:
        before, self._wanted = self._wanted, self._layout_for(op)
        super().op(op)
        self._wanted = before

    def _layout_for(self, op: Operation) -> Layout | None:
        """The layout that an op's operands are read in."""
        if isinstance(op, Reduce):
            return self._layouts.get(op.x)
        if isinstance(op, Store):
            return self._layouts.get(op.value)
        return self._layouts.get(op.results[0]) if op.results else None

    @contextmanager
    def whole_tiles(self, *, is_whole: bool) -> Iterator[None]:
        """Take all tiles for whole ones meanwhile, which begin at numbers of 32 bits."""
        self.scope.has_narrow_starts = is_whole
        yield
        self.scope.has_narrow_starts = False

    @override
    def expr(self, value: Value) -> Expr:
        if self._is_plain(value):
            found = super().expr(value)
            is_wide = self.scope.has_narrow_starts and value.type == TileType(I64, ())
            return convert(found, I64, I32) if is_wide else found
        if value in self.uses.inlined:
            return self._inlined(value)
        expr = super().expr(value)
        home, wanted = self._layouts.get(value), self._wanted
        if home is None or wanted is None or home == wanted:
            return expr
        return call("gl.convert_layout", expr, wanted, shape=expr.shape)

    def _is_plain(self, value: Value) -> bool:
        return value in self.spelling.parameter_names or not value.tile.rank

    def _inlined(self, value: Value) -> Expr:
        """Written anew at each use, in the layout of that use."""
        op, before = self.uses.defining[value], self._wanted
        if isinstance(op, ExpandDims) and before is not None:
            self._wanted = without_axes(before, op.axes)
        self._exprs.pop(value, None)
        self._apply_rule(op)
        self._wanted = before
        return self._exprs[value]

    def plain_expression(self, op: Operation) -> Expr:
        """What the rule of an op writes for its result, in no variable."""
        (result,) = op.results
        is_inlined = result in self.uses.inlined
        self.uses.inlined.add(result)
        super()._apply_rule(op)
        if not is_inlined:
            self.uses.inlined.discard(result)
        return self._exprs.pop(result)

    @override
    def _apply_rule(self, op: Operation) -> None:
        if op in self.guarded:
            self.guarded[op](self, op)
        else:
            super()._apply_rule(op)

    def in_layout(self, value: Value, layout: Layout | None) -> Expr:
        """A whole tile in the given layout."""
        before, self._wanted = self._wanted, layout
        found = self.exact(value)
        self._wanted = before
        return found
