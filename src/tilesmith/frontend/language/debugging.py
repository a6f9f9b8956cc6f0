"""Looking into a running kernel: ``hl.device_print`` (and ``print``), ``hl.breakpoint``."""

from __future__ import annotations

import sys
from typing import Any

import tilesmith.exc as errors
from tilesmith.diagnostics.wording import kind_of
from tilesmith.frontend.refusals import invalid_kind
from tilesmith.frontend.tracing.emission import as_tile
from tilesmith.frontend.tracing.tensors import TensorRef
from tilesmith.frontend.tracing.tile import Tile
from tilesmith.frontend.tracing.tracer import current_tracer
from tilesmith.frontend.tracing.values import TileValue
from tilesmith.ir.ops.foreign import Breakpoint, Print
from tilesmith.ir.types import Value

_PACKAGE = "tilesmith.frontend"
_TRACING_MODULE = f"{_PACKAGE}.trace"


def device_print(prefix: str, *values: Any) -> None:
    """Print device values while the kernel runs, after a literal prefix.

    On a GPU and in native code each element is a line of its own, with the program and the
    element's index; the reference interpreter prints whole tiles.

    Example:
        ``hl.device_print("row sums", sums)``
    """
    _print("hl.device_print", prefix, values)


def print_builtin(*arguments: Any, **options: Any) -> None:
    """``print`` in device code: the same, with Python's name."""
    if options:
        raise invalid_kind("print", f"device code knows no `{next(iter(options))}=`")
    if not arguments:
        raise _wrong_prefix("print", "nothing")
    _print("print", arguments[0], arguments[1:])


def _print(function: str, prefix: Any, values: tuple[Any, ...]) -> None:
    tracer = current_tracer(function)
    if not isinstance(prefix, str):
        raise _wrong_prefix(function, kind_of(prefix))
    if not prefix.isascii() or not prefix.isprintable():
        raise _wrong_prefix(function, repr(prefix))
    shown = tuple(_shown(value, function) for value in values)
    tracer.builder.effect(Print, values=shown, prefix=prefix)


def _wrong_prefix(function: str, found: str) -> errors.BaseError:
    return errors.InvalidArgumentKind(
        function=function,
        problem="the first argument must be a literal string of printable ASCII characters",
        found=found,
        fix=f'write {function}("some text", value)',
    )


def _shown(value: Any, function: str) -> Value:
    if isinstance(value, TensorRef):
        raise errors.HostTensorDirectUsage(name=value.source, use=f"an argument of {function}")
    if isinstance(value, Tile):
        value = value.index
    if not isinstance(value, (TileValue, int, float)):
        raise errors.TracedArgNotSupported(
            function=function,
            kind=kind_of(value),
            argument="values",
            expected="device values and numbers after the prefix",
        )
    return as_tile(value).value


def breakpoint(*_: Any, **__: Any) -> None:
    """Stop in Python's debugger, where the kernel's variables are tensors. Interpreter only.

    Example:
        ``hl.breakpoint()`` in a kernel under ``backend="reference"``
    """
    tracer = current_tracer("hl.breakpoint")
    if not tracer.options.is_interpreted:
        raise errors.BreakpointInDeviceLoopRequiresInterpret()
    names = visible_values()
    tracer.builder.effect(Breakpoint, values=tuple(names.values()), names=tuple(names))


def visible_values() -> dict[str, Value]:
    """The device values and host tensors that names of the user's code stand for right now."""
    found: dict[str, Value] = {}
    frame = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__") != _TRACING_MODULE:
        # Code of ours stands between the nested functions that bodies of loops became.
        is_ours = str(frame.f_globals.get("__name__", "")).startswith(_PACKAGE)
        for name, held in ({} if is_ours else frame.f_locals).items():
            value = _value_of(held)
            if value is not None and not name.startswith("__"):
                found.setdefault(name, value)
        frame = frame.f_back
    return found


def _value_of(held: Any) -> Value | None:
    if isinstance(held, TensorRef):
        return held.value
    if isinstance(held, Tile):
        held = held.index
    if not isinstance(held, TileValue):
        return None
    try:
        return held.value
    except errors.BaseError:
        # Of a loop or branch that has ended.
        return None
