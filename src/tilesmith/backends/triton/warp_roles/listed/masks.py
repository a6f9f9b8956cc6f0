"""Turns of a list: whether one needs masks is known when it is known where it lies."""

from __future__ import annotations

from tilesmith.backends.triton.emission.spelling import Expr, literal
from tilesmith.backends.triton.warp_roles.emitter import GROUP, ROWS, RoleEmitter
from tilesmith.backends.triton.warp_roles.listed.turns import emit_start
from tilesmith.backends.triton.warp_roles.plan import RolePlan
from tilesmith.backends.triton.warp_roles.segments import Condition, Segments
from tilesmith.ir.types import Dim

IS_CUT = "is_cut"
"""Whether some lane of a turn is left out: a variable of the role that computes."""


def emit_listed(emitter: RoleEmitter, plan: RolePlan, segments: Segments, turn: str) -> None:
    """Where a turn of a list lies, loaded before its products are waited for, and what it needs."""
    if plan.listing is None:
        return
    emit_start(emitter, plan, turn)
    if segments:
        _emit_is_cut(emitter, plan, segments)


def _emit_is_cut(emitter: RoleEmitter, plan: RolePlan, segments: Segments) -> None:
    """Whether a turn needs masks, where turns do not follow one another along the axis."""
    terms = [f"({_least(emitter, plan, condition)} < 0)" for condition in segments.conditions]
    start = emitter.expr(plan.loop.body.args[0])
    block = emitter.spelling.block_name(plan.loop.blocks[0])
    if segments.has_partial_turn:
        terms.append(f"({start} + {block} > {emitter.expr(plan.loop.ends[0])})")
    emitter.writer.line(f"{IS_CUT} = {' | '.join(terms)}")


def _least(emitter: RoleEmitter, plan: RolePlan, condition: Condition) -> Expr:
    """The least value of a condition among the lanes of a turn; it holds where that is not less."""
    columns, rows = Dim.of(plan.loop.blocks[0]), Dim.of(plan.rows)
    block = emitter.spelling.block_name(plan.loop.blocks[0])
    least = literal(-condition.least)
    for sign, index in condition.terms:
        least += literal(sign * index.offset)
        for value, factor in index.base:
            least += emitter.expr(value) * (sign * factor)
        scale, size = sign * index.scale, block if index.dim == columns else ROWS
        if index.dim == rows:
            least += Expr(f"{GROUP} * {ROWS}") * scale
        if index.dim in (rows, columns) and scale < 0:
            least += Expr(f"({size} - 1)") * scale
    return least
