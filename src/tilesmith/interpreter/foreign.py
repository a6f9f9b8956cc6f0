"""Prints tiles, stops in a debugger between two ops, and refuses code meant for a GPU."""

from __future__ import annotations

import sys
from types import FunctionType
from typing import Any

import tilesmith.exc as errors
from tilesmith.diagnostics.location import SourceLocation
from tilesmith.interpreter.frame import Evaluators, Frame
from tilesmith.ir.ops.foreign import Assert, Breakpoint, InlineAsm, InlineTriton, Print
from tilesmith.ir.types import TensorType

_FIX = (
    'move the arguments to a GPU (backend="triton"), or write it with torch operations,\n'
    "which run everywhere"
)


def _print(op: Print, frame: Frame) -> None:
    """One line (or block of lines) with where the program begins, and the valid lanes."""
    tensors = map(frame.tensor, op.values)
    shown = ", ".join(str(x if x.dim() else x.item()) for x in tensors)
    colon = ": " if op.prefix and shown else ""
    sys.stdout.write(f"at {_position(frame)} {op.prefix}{colon}{shown}\n")


def _position(frame: Frame) -> str:
    return f"({', '.join(map(str, frame.program))})"


def _breakpoint(op: Breakpoint, frame: Frame) -> None:
    """Call the debugger from a frame at the user's line, with the values as its variables."""
    kinds = ((value, isinstance(value.type, TensorType)) for value in op.values)
    values = [frame.values[v] if is_tensor else frame.tensor(v) for v, is_tensor in kinds]
    _stop_at(op.loc, op.names)(*values)


def _assert(op: Assert, frame: Frame) -> None:
    """Raise at the user's line where the condition does not hold."""
    if not frame.tensor(op.condition).item():
        raise errors.DeviceAssertionFailed(
            condition=op.message or op.loc.text or "the condition is false",
            program=_position(frame),
            loc=op.loc,
        )


def _stop_at(loc: SourceLocation, names: tuple[str, ...]) -> FunctionType:
    """A function with these parameters that stands at the place and calls the debugger."""
    scope: dict[str, Any] = {"__sys": sys}
    blank = "\n" * max(loc.line - 1, 0)
    text = f"{blank}def __stop({', '.join(names)}): __sys.breakpointhook()"
    exec(compile(text, loc.file, "exec", dont_inherit=True), scope)
    function = scope["__stop"]
    function.__code__ = function.__code__.replace(co_name=loc.function or "kernel")
    return function


def refusal(op: InlineTriton | InlineAsm, backend: str) -> errors.BaseError:
    """The error of a backend that has no Triton."""
    function = "hl.inline_asm_elementwise"
    if isinstance(op, InlineTriton):
        function = "hl.triton_kernel" if op.definitions else "hl.inline_triton"
    return errors.BackendUnsupported(operation=function, backend=backend, fix=_FIX, loc=op.loc)


def _inline(op: InlineTriton | InlineAsm, frame: Frame) -> None:
    raise refusal(op, "reference")


EVALUATORS: Evaluators = {
    Print: _print,
    Breakpoint: _breakpoint,
    Assert: _assert,
    InlineTriton: _inline,
    InlineAsm: _inline,
}
