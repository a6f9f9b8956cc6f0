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
from tilesmith.ir.ops.elementwise import Elementwise
from tilesmith.ir.ops.indexing import Full
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.shape import Broadcast, ExpandDims, Reshape
from tilesmith.ir.tile_writer import TileWriter
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
from tilesmith.ir.types import Value
from tilesmith.passes.accesses import forward_stored_values
from tilesmith.passes.eliminate_dead_code import eliminate_dead_code
from tilesmith.passes.expressions import (
    fuse_accumulating_dots,
    hoist_loop_invariants,
    merge_common_subexpressions,
)
from tilesmith.passes.simplify import fold_constants, simplify_attached


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


def subtract_rows(function: Function) -> Function:
    """Subtract what is the same along an axis from a product, where its opposite would be added.

    Before::

        %b = broadcast(%a) : f32[m, n]
        %c = elementwise(%d, %b) {fn="add"} : f32[m, n]

    After, where ``%d`` is a product::

        %e = elementwise(%a) {fn="neg"} : f32[m, 1]
        %b = broadcast(%e) : f32[m, n]
        %c = elementwise(%d, %b) {fn="sub"} : f32[m, n]

    Added it would be what the product begins with, which then waits for it.
    """
    return apply_rules(function, [_row_added, _negative_added])


def _row_added(op: Operation, find: Definitions) -> Replacement | None:
    if not isinstance(op, Elementwise) or op.fn != "add":
        return None
    for product, row in (op.args, op.args[::-1]):
        dot, wide = find(product), find(row)
        is_product = isinstance(dot, Dot) and dot.acc is None
        if not is_product or not isinstance(wide, Broadcast):
            continue
        writer = TileWriter(lambda: op.loc)
        writer.open_region()
        negated = _negated(wide.x, writer, find)
        spread = writer.create(Broadcast, wide.result.type, x=negated)
        ops = writer.close_region().ops
        return [*ops, replace(op, fn="sub", args=(product, spread))]
    return None


def _negated(value: Value, writer: TileWriter, find: Definitions) -> Value:
    """The opposite of a value, by way of what it is a view of."""
    source = find(value)
    if isinstance(source, Elementwise) and source.fn == "neg":
        return source.args[0]
    if isinstance(source, ExpandDims):
        inner = _negated(source.x, writer, find)
        return writer.create(ExpandDims, value.type, x=inner, axes=source.axes)
    return writer.apply("neg", value)


def _negative_added(op: Operation, find: Definitions) -> Replacement | None:
    """``a + -b`` is ``a - b``."""
    if not isinstance(op, Elementwise) or op.fn != "add":
        return None
    for first, second in (op.args, op.args[::-1]):
        source = find(second)
        if isinstance(source, Elementwise) and source.fn == "neg":
            return [replace(op, fn="sub", args=(first, source.args[0]))]
    return None


def fold_logarithms(function: Function) -> Function:
    """The logarithm of one is zero: that of a total by which everything was divided."""
    return apply_rules(function, [_sum_with_nothing, _logarithm_of_one])


def _sum_with_nothing(op: Operation, find: Definitions) -> Replacement | None:
    if not isinstance(op, Elementwise) or op.fn != "add":
        return None
    pairs = ((op.args[0], find(op.args[1])), (op.args[1], find(op.args[0])))
    return next((x for x, other in pairs if other and _logarithm_of_one(other, find)), None)


def _logarithm_of_one(op: Operation, find: Definitions) -> Replacement | None:
    if not isinstance(op, Elementwise) or op.fn not in ("log", "log2", "log10"):
        return None
    number = find(op.args[0])
    is_one = isinstance(number, Full) and number.value == 1
    return [Full(value=0.0, results=op.results, loc=op.loc)] if is_one else None


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
        rewrite(simplify_attached, "What does nothing has no adjoint."),
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
        rewrite(fold_logarithms, "Totals that everything was divided by are one."),
        rewrite(fold_constants, "Derivatives of linear ops are constants."),
        rewrite(simplify_attached, "Factors of one go."),
        rewrite(drop_idle_views, "Adjoints of views undo what the next one does."),
        rewrite(drop_double_transposes, "Adjoints of transposes undo others."),
        rewrite(fold_constants, "Again, for what that laid bare."),
        rewrite(merge_common_subexpressions, "Adjoints compute much that others do, too."),
        rewrite(eliminate_dead_code, "Most forward values are not needed again."),
        rewrite(subtract_rows, "Products need not wait for what is added to them."),
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
