"""Drops selections that give lanes the constant they hold already, as masked loads do."""

from __future__ import annotations

from tilesmith.analysis.deselected_lanes import constant_where_false
from tilesmith.analysis.scalar_arithmetic import is_same_constant, normalize
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.elementwise import Elementwise
from tilesmith.ir.ops.indexing import Full
from tilesmith.ir.rewriting import Definitions, Replacement, apply_rules


def drop_idle_selections(function: Function) -> Function:
    """Use a value itself where it is the selected constant in all lanes not selected.

    Before::

        %v = load(%x, %within, [%i]) : f32[t]
        %s = elementwise(%within, %v, %zero) {fn="where"} : f32[t]

    After::

        %v = load(%x, %within, [%i]) : f32[t]

    with ``%v`` used for ``%s``. Equal conditions must be one value by now.
    """
    return apply_rules(function, (_where_held,))


def _where_held(op: Operation, defined_by: Definitions) -> Replacement | None:
    if not isinstance(op, Elementwise) or op.fn != "where":
        return None
    condition, chosen, other = op.args
    filled = defined_by(other)
    if not isinstance(filled, Full):
        return None
    held = constant_where_false(chosen, condition, defined_by)
    fill = normalize(filled.value, other.tile.dtype)
    is_idle = held is not None and fill is not None and is_same_constant(held, fill)
    return chosen if is_idle else None
