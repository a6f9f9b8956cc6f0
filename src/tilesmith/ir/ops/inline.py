"""Code of the user's own for one backend. The others have an error for it, at the user's line."""

from __future__ import annotations

from tilesmith.ir.axis_roles import Opaque
from tilesmith.ir.operation import Operation, attribute, op, operands
from tilesmith.ir.traits import Trait
from tilesmith.ir.values import Value


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
