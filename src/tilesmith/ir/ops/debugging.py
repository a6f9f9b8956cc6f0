"""Looking into a running kernel. These ops have an effect, so they are never moved or removed."""

from __future__ import annotations

from typing_extensions import override

from tilesmith.ir.axis_roles import Opaque
from tilesmith.ir.operation import Operation, attribute, op, operands
from tilesmith.ir.traits import Trait
from tilesmith.ir.values import Value


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
