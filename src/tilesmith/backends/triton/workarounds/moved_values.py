"""Variables that a turn of a loop sets to what another one held, told apart for Triton.

Triton takes a variable for unchanged whose value at the end of a turn is the one it began with,
and looks for that in a trial turn that begins with the values before the loop. Where two variables
begin with one value and one becomes the other (``a, b = b, a + 1``) that is a mistake: results are
silently those of a loop without the assignment (docs/decisions/0012).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilesmith.backends.triton.emission.emitter import Emitter
from tilesmith.backends.triton.emission.spelling import call
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.elementwise import Cast
from tilesmith.ir.ops.shape import Broadcast, ExpandDims, Permute, Reshape
from tilesmith.ir.types import Value

_VIEWS = (Broadcast, Cast, ExpandDims, Permute, Reshape)
"""What may leave a value of Triton as it is."""


def moved(region: Region, defined_by: Mapping[Value, Operation]) -> list[int]:
    """Positions of carried values that end a turn as another one."""
    args = region.args[len(region.args) - len(region.yielded) :]
    ends = [_origin(value, defined_by) for value in region.yielded]
    return [n for n, end in enumerate(ends) if end in args and end is not args[n]]


def _origin(value: Value, defined_by: Mapping[Value, Operation]) -> Value:
    op = defined_by.get(value)
    while isinstance(op, _VIEWS):
        value = op.x
        op = defined_by.get(value)
    return value


def tell_apart(emitter: Emitter, names: Sequence[str], region: Region) -> None:
    """Give variables that a turn sets to what others held values of their own."""
    for position in moved(region, emitter.uses.defining):
        name = names[position]
        emitter.assign(name, call("tl.where", "True", name, name))
