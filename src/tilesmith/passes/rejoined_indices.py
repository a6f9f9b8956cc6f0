"""``(x // w) * w + x mod w = x``, of any integers: the product wraps around as the sum does.

Grids that run through all elements by one index split it into coordinates. What is counted by
elements, as random numbers are, puts these together again; compilers do not see that neighbours
then differ by one.
"""

from __future__ import annotations

from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.elementwise import Elementwise
from tilesmith.ir.ops.indexing import Full
from tilesmith.ir.ops.shape import Broadcast, ExpandDims
from tilesmith.ir.traversal import Definitions, Replacement
from tilesmith.ir.types import Constant, Value


def rejoin(op: Operation, defined_by: Definitions) -> Replacement | None:
    """The index that both terms of a sum come from; none where they do not."""
    terms = _arguments(op, "add")
    if terms is None or not op.results[0].tile.dtype.is_integer:
        return None
    for high, low in (terms, terms[::-1]):
        product, remainder = _arguments(defined_by(high), "mul"), _arguments(defined_by(low), "mod")
        if product is None or remainder is None:
            continue
        index, width = remainder
        for quotient, factor in (product, product[::-1]):
            divided = _arguments(defined_by(quotient), "floordiv")
            if divided is not None and divided[0] is index:
                widths = {_key(value, defined_by) for value in (width, factor, divided[1])}
                return index if len(widths) == 1 else None
    return None


def _arguments(op: Operation | None, fn: str) -> tuple[Value, ...] | None:
    """Those of a function, if that is what an op is."""
    return op.args if isinstance(op, Elementwise) and op.fn == fn else None


def _key(value: Value, defined_by: Definitions) -> Value | Constant:
    """The same for values that are equal in every lane."""
    source, op = value, defined_by(value)
    while isinstance(op, (Broadcast, ExpandDims)):
        source, op = op.x, defined_by(op.x)
    if isinstance(op, Full):
        return op.value
    # A vector may be repeated along different axes: only of numbers all views are alike.
    return value if source.tile.rank else source
