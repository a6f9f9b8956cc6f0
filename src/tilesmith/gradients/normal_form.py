"""The passes before and after differentiation.

Forward functions are taken as they were traced, without masks: the backward kernel is traced anew
and gets masks of its own.
"""

from __future__ import annotations

from tilesmith.compiler.lowering import Lowering, Stage, rewrite, run_stages
from tilesmith.ir.function import Function
from tilesmith.passes.accesses import forward_stored_values
from tilesmith.passes.eliminate_dead_code import eliminate_dead_code
from tilesmith.passes.expressions import (
    fuse_accumulating_dots,
    hoist_loop_invariants,
    merge_common_subexpressions,
)
from tilesmith.passes.simplify import fold_constants, simplify_algebra

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
        rewrite(eliminate_dead_code, "Loads that nothing needs have no gradient."),
    ),
)

BACKWARD = Stage(
    "BACKWARD",
    "Once for each derived backward: only what gradients need, each once.",
    (
        rewrite(fold_constants, "Derivatives of linear ops are constants."),
        rewrite(simplify_algebra, "Factors of one go."),
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
