"""The walk over a device function's ops: values become expressions, ops become lines.

Goes in: a function, its schedule, the table of rules. Comes out: the body's lines in ``writer`` and
what they refer to in ``spelling.needs``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tilesmith.backends.source_writer import SourceWriter
from tilesmith.backends.triton.emission.axes import Axis, AxisScope, find_joined_values
from tilesmith.backends.triton.emission.rounded_quotients import find_rounded_values
from tilesmith.backends.triton.emission.spelling import Expr, Spelling, axis_suffix
from tilesmith.backends.triton.emission.unseen_lanes import UnseenLanes
from tilesmith.backends.triton.emission.uses import Variables, find_uses
from tilesmith.backends.triton.emission.value_facts import Multiples, Signs, find_partial_tiles
from tilesmith.diagnostics.catalogue import InternalError
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import Grid, Loop, Yield
from tilesmith.ir.ops.elementwise import Cast
from tilesmith.ir.ops.indexing import Mask
from tilesmith.ir.ops.memory import Load
from tilesmith.ir.ops.reduction import Reduce, Scan
from tilesmith.ir.traversal import walk_function
from tilesmith.ir.types import Dim, Shape, Value
from tilesmith.schedule.schedule import Schedule

Rules = Mapping[type[Operation], Callable[["Emitter", Any], None]]

# What an unnamed value is called, by the op that makes it.
_NAME_HINTS = {
    **{"dot": "product", "loop": "carried", "if": "chosen"},
    **{"reduce_with": "combined", "scan_with": "running"},
}


class Emitter:
    """The state of emitting one device function."""

    def __init__(self, function: Function, schedule: Schedule, rules: Rules) -> None:
        self.function = function
        self.schedule = schedule
        self.facts = find_partial_tiles(function, schedule)
        self.uses = find_uses(function, self.facts)
        self.variables = Variables(self.uses)
        has_origins = bool(schedule.backend_options.get("output_origin_lines", True))
        self.writer = SourceWriter(has_origins=has_origins)
        self.spelling = Spelling(function, schedule)
        self.scope = AxisScope(self.spelling, self.writer)
        self.multiples = Multiples(function, schedule)
        self.signs = Signs(function, self.uses.defining)
        self.unseen = UnseenLanes(function)
        self._rules = rules
        self._exprs: dict[Value, Expr] = {}
        self._end_names = {
            end: f"end{axis_suffix(block)}"
            for op in walk_function(function)
            if isinstance(op, (Grid, Loop))
            for block, end in zip(op.blocks, op.ends)
        }
        self.triton_version: tuple[int, int] = (3, 6)
        self.long_last: frozenset[str] = frozenset()
        """Blocks of the grid along which programs take longer and longer."""
        self.renumber: Callable[[Expr, Expr, Expr], Expr] = lambda tile, tiles, programs: tile
        """Which tile of all a program takes when it comes to a number, which so many walk to."""
        self.rounded_values = find_rounded_values(function)
        self._joined = find_joined_values(function, self.uses.defining)

    def region(self, region: Region) -> None:
        """Emit the ops of a region; what its yield hands over is the enclosing op's business."""
        for op in region.ops:
            if not isinstance(op, Yield):
                self.op(op)

    def op(self, op: Operation) -> None:
        """Emit one op, unless nothing needs it or it is written where it is used."""
        is_needed = not self.uses.is_dead(op) and self._joined.isdisjoint(op.results)
        if is_needed and not self.uses.is_inlined(op):
            self.writer.origin(op.loc)
            self._apply_rule(op)

    def _apply_rule(self, op: Operation) -> None:
        rule = self._rules.get(type(op))
        if rule is None:
            raise InternalError(loc=op.loc, problem=f"no Triton rule for {op.name}")
        rule(self, op)

    def expr(self, value: Value) -> Expr:
        """How the value is written where it is used; it may be smaller than its type says."""
        if value not in self._exprs and value in self.uses.inlined:
            self._apply_rule(self.uses.defining[value])
        return self.spelling.find_parameter(value) or self._exprs[value]

    def exact(self, value: Value) -> Expr:
        """The value with exactly its type: a full-sized tile of its element type."""
        return self.spelling.conform(self.expr(value), value.tile)

    def define(self, value: Value, expr: Expr) -> None:
        """Give a value its expression, as a statement unless it is written at its use."""
        if value in self.uses.inlined:
            self._exprs[value] = expr
            return
        shared = self.variables.find_name(value)
        name = shared or self.spelling.names.fresh(self.name_hint(value))
        final = self.spelling.conform(expr, value.tile) if shared else expr
        self.assign(name, final)
        self.bind(value, name, final.shape)

    def alias(self, value: Value, expr: Expr) -> None:
        """Let a value be written as ``expr`` wherever it is used."""
        self._exprs[value] = expr

    def bind(self, value: Value, name: str, shape: Shape | None = None) -> None:
        """Let a value live in a variable that has been (or is about to be) assigned."""
        if self.variables.find_name(value) is None:
            self.variables.put(value, name)
        self._exprs[value] = Expr(name, shape=value.tile.shape if shape is None else shape)

    def assign(self, name: str, expr: Expr) -> None:
        """Write ``name = expr``."""
        self.writer.statement(f"{name} = {expr.text}", expr.arguments)

    def named(self, hint: str, expr: Expr) -> Expr:
        """Write an expression to a fresh variable, which then stands for it."""
        name = self.spelling.names.fresh(hint)
        self.assign(name, expr)
        return Expr(name, shape=expr.shape)

    def axis(self, op: Grid | Loop, position: int, start: Expr) -> Axis:
        """An axis of a loop whose body begins here."""
        block, end = op.blocks[position], op.ends[position]
        return Axis(
            Dim.of(block),
            axis_suffix(block),
            start,
            self.expr(end),
            self.facts.axes[op][position],
            self.writer.reserve(),
            self.spelling.names.moment,
            op.body.args[position],
            end,
        )

    def name_hint(self, value: Value) -> str:
        """What to call a value: the user's name, or one after what made it."""
        op = self.uses.defining.get(value)
        if value.name or op is None:
            return value.name or "value"
        if value in self._end_names:
            return self._end_names[value]
        if isinstance(op, Load):
            return f"{self.expr(op.tensor)}_tile"
        if isinstance(op, Cast):
            return f"{self._stem(op.x, 'cast')}_{op.dtype}"
        if isinstance(op, (Reduce, Scan)):
            return f"{self._stem(op.x, 'tile')}_{'cum' * isinstance(op, Scan)}{op.kind}"
        own = op.attributes()
        return str(own.get("fn") or own.get("kind") or _NAME_HINTS.get(op.name, op.name))

    def _stem(self, value: Value, default: str) -> str:
        """The variable of an operand, to name what is made of it."""
        op = self.uses.defining.get(value)
        text = str(self.expr(op.x if isinstance(op, Mask) else value))
        return text if text.isidentifier() else default

    @property
    def is_fast(self) -> bool:
        """Whether approximate functions are welcome."""
        return bool(self.schedule.backend_options.get("fast_math", False))
