"""The passes before and after differentiation.

Forward functions are taken as they were traced, without masks: the backward kernel is traced anew
and gets masks of its own.
"""

from __future__ import annotations

from dataclasses import replace

from tilesmith.compiler.lowering import Lowering, Stage, rewrite, run_stages
from tilesmith.gradients.transposes import drop_double_transposes
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import Loop
from tilesmith.ir.ops.shape import Broadcast, ExpandDims, Reshape
from tilesmith.ir.traversal import (
    Definitions,
    Replacement,
    Substitution,
    apply_rules,
    definitions,
    rewrite_function,
    rewrite_region,
    values_defined_in,
    values_used_by,
)
from tilesmith.passes.accesses import forward_stored_values
from tilesmith.passes.eliminate_dead_code import eliminate_dead_code
from tilesmith.passes.expressions import (
    fuse_accumulating_dots,
    hoist_loop_invariants,
    merge_common_subexpressions,
)
from tilesmith.passes.simplify import fold_constants, simplify_algebra


def drop_idle_views(function: Function) -> Function:
    """Drop an axis that is inserted where one was dropped before.

    Before::

        %a = reshape(%x) : f32[t]
        %b = expand_dims(%a) {axes=[1]} : f32[t, 1]

    After, where ``%x`` is of ``f32[t, 1]``, ``%b`` is ``%x``.
    """
    return apply_rules(function, [_expanded_again])


def _expanded_again(op: Operation, find: Definitions) -> Replacement | None:
    source = find(op.x) if isinstance(op, (ExpandDims, Reshape)) else None
    is_view = isinstance(source, (Reshape, ExpandDims))
    return source.x if is_view and source.x.type == op.result.type else None


def sink_views(function: Function) -> Function:
    """Repeat views that loops use at the start of their bodies.

    Before::

        %b = expand_dims(%a) {axes=[0]} : f32[1, 8]
        loop ... { elementwise(%c, %b) }

    After::

        loop ... { %b = expand_dims(%a) {axes=[0]} : f32[1, 8]; elementwise(%c, %b) }

    The loop sums up cotangents of what it uses: better of ``%a``, which has fewer axes.
    """
    known = definitions(function.body)

    def sink(op: Operation) -> Operation:
        if not isinstance(op, Loop):
            return op
        inside = set(values_defined_in(op.body))
        outer = {v: known.get(v) for v in values_used_by(op.body.ops) if v not in inside}
        found = [source for source in outer.values() if isinstance(source, VIEWS)]
        views = [view for view in found if view.result.tile.dtype.is_float]
        return replace(op, body=_with_copies(op.body, views)) if views else op

    return rewrite_function(function, sink)


VIEWS = (ExpandDims, Broadcast)


def _with_copies(body: Region, views: list[ExpandDims | Broadcast]) -> Region:
    copies = [view.result.like() for view in views]
    substitution = Substitution()
    for view, copy in zip(views, copies):
        substitution[view.result] = copy
    inner = rewrite_region(body, lambda op: op, substitution)
    sunk = [replace(view, results=(copy,)) for view, copy in zip(views, copies)]
    return Region(body.args, (*sunk, *inner.ops))


FORWARD = Stage(
    "FORWARD",
    "Once for each derived backward: the function in a form with few cases.",
    (
        rewrite(fold_constants, "Numbers are known as such: ties with them are decided."),
        rewrite(simplify_algebra, "What does nothing has no adjoint."),
        rewrite(merge_common_subexpressions, "What is loaded twice has one cotangent."),
        rewrite(forward_stored_values, "What was stored is not read back."),
        rewrite(hoist_loop_invariants, "Cotangents of invariants are summed in the loop."),
        rewrite(merge_common_subexpressions, "Hoisted loads may have doubles."),
        rewrite(sink_views, "Of what is repeated along an axis, loops sum up no copies."),
        rewrite(eliminate_dead_code, "Loads that nothing needs have no gradient."),
    ),
)

BACKWARD = Stage(
    "BACKWARD",
    "Once for each derived backward: only what gradients need, each once.",
    (
        rewrite(fold_constants, "Derivatives of linear ops are constants."),
        rewrite(simplify_algebra, "Factors of one go."),
        rewrite(drop_idle_views, "Adjoints of views undo what the next one does."),
        rewrite(drop_double_transposes, "Adjoints of transposes undo others."),
        rewrite(fold_constants, "Again, for what that laid bare."),
        rewrite(merge_common_subexpressions, "Adjoints compute much that others do, too."),
        rewrite(eliminate_dead_code, "Most forward values are not needed again."),
        rewrite(fuse_accumulating_dots, "Sums of products keep their accumulator."),
        rewrite(hoist_loop_invariants, "Cotangents of sums are the same in every turn."),
        rewrite(merge_common_subexpressions, "What was hoisted may be there already."),
        rewrite(eliminate_dead_code, "What merging has left without a use goes."),
    ),
)


def simplify_forward(function: Function) -> Function:
    """The form that is differentiated."""
    return run_stages(Lowering(function), [FORWARD]).function


def simplify_backward(function: Function) -> Function:
    """The form that is printed."""
    return run_stages(Lowering(function), [BACKWARD]).function
