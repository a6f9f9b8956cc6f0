"""What sees whole tiles: debugging, and code of the user's own for one backend.

Debugging ops have an effect, so they are never moved or removed. Backends that cannot run a user's
code have an error for it, at the user's line.
"""

from __future__ import annotations

from typing_extensions import override

from tilesmith.ir.axis_roles import Opaque
from tilesmith.ir.operation import Operation, Trait, attribute, op, operand, operands
from tilesmith.ir.types import Value


@op("print", Trait.EFFECT, num_results=0, axes=Opaque())
class Print(Operation):
    """Show ``prefix`` and the valid lanes of each value."""

    values: tuple[Value, ...] = operands()
    prefix: str = attribute()


@op("breakpoint", Trait.EFFECT, num_results=0, axes=Opaque())
class Breakpoint(Operation):
    """Stop in a debugger where the values are variables of these ``names`` (interpreter only)."""

    values: tuple[Value, ...] = operands()
    names: tuple[str, ...] = attribute()

    @override
    def verify(self) -> str | None:
        return None if len(self.names) == len(self.values) else "one name is needed for each value"


@op("assert", Trait.EFFECT, num_results=0, axes=Opaque())
class Assert(Operation):
    """Raise with ``message`` where the scalar ``condition`` is false (interpreter only)."""

    condition: Value = operand()
    message: str = attribute(default="")

    @override
    def verify(self) -> str | None:
        return "the condition is no scalar" if self.condition.tile.rank else None


@op("inline_triton", Trait.EFFECT | Trait.READS | Trait.WRITES, num_results=None, axes=Opaque())
class InlineTriton(Operation):
    """Triton statements, the last line an expression for the results (a tuple for several).

    ``source`` has ``{0}``-style or ``{name}`` placeholders for ``args`` (tiles and tensors, which
    stand for their pointers) in the order of ``names``. ``definitions`` is module-level source that
    the statements need: functions under ``@triton.jit`` and constants.
    """

    args: tuple[Value, ...] = operands()
    source: str = attribute()
    names: tuple[str, ...] = attribute()
    definitions: str = attribute(default="")


@op("inline_asm", Trait.EFFECT, num_results=None, axes=Opaque())
class InlineAsm(Operation):
    """PTX applied elementwise to ``pack`` elements at a time; all tiles have one shape."""

    args: tuple[Value, ...] = operands()
    asm: str = attribute()
    constraints: str = attribute()
    is_pure: bool = attribute(default=True)
    pack: int = attribute(default=1)
