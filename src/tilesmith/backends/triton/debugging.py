"""The rules for looking into a running kernel."""

from __future__ import annotations

from tilesmith.backends.triton.emit import Emitter
from tilesmith.diagnostics import errors
from tilesmith.ir.ops.foreign import Breakpoint, Print


def emit_print(emitter: Emitter, op: Print) -> None:
    """Triton's own print: it adds the program and the index of each element."""
    prefix = op.prefix.replace("\\", "\\\\").replace(chr(34), '\\"').replace("%", "%%")
    values = [str(emitter.exact(value)) for value in op.values]
    emitter.writer.statement("tl.device_print", [f'"{prefix}"', *values])


def emit_breakpoint(emitter: Emitter, op: Breakpoint) -> None:
    """A GPU cannot stop in a debugger."""
    raise errors.BreakpointInDeviceLoopRequiresInterpret(loc=op.loc)
