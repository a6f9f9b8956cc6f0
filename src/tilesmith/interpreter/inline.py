"""Code of the user's own for a GPU: only the Triton backend can run it."""

from __future__ import annotations

from tilesmith.diagnostics import errors
from tilesmith.interpreter.frame import Evaluator, Frame
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.foreign import InlineAsm, InlineTriton

_FIX = (
    'move the arguments to a GPU (backend="triton"), or write it with torch operations,\n'
    "which run everywhere"
)


def refusal(op: InlineTriton | InlineAsm, backend: str) -> errors.BaseError:
    """The error of a backend that has no Triton."""
    function = "hl.inline_asm_elementwise"
    if isinstance(op, InlineTriton):
        function = "hl.triton_kernel" if op.definitions else "hl.inline_triton"
    return errors.BackendUnsupported(operation=function, backend=backend, fix=_FIX, loc=op.loc)


def evaluate_inline(op: InlineTriton | InlineAsm, frame: Frame) -> None:
    """There is nothing to evaluate."""
    raise refusal(op, "reference")


EVALUATORS: dict[type[Operation], Evaluator] = {
    InlineTriton: evaluate_inline,
    InlineAsm: evaluate_inline,
}
