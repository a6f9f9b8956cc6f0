"""Coordinates split from one index, joined again where they lie one after the other in memory.

``(k // n) * (n * s) + (k % n) * s`` is ``k * s``: a flattened tile of a contiguous tensor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.elementwise import Elementwise
from tilesmith.ir.ops.indexing import Full
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.ir.ops.shape import Broadcast, ExpandDims
from tilesmith.ir.traversal import walk_function
from tilesmith.ir.types import Extent
from tilesmith.ir.values import Value

Term = tuple[Value, Extent]
"""An index and the stride it is multiplied with."""
Definitions = Mapping[Value, Operation]


def index_terms(
    tensor: Value, indices: Sequence[Value | None], defining: Definitions
) -> list[Term]:
    """What an address is the sum of; dimensions without an index or a stride add nothing."""
    pairs = zip(indices, tensor.tensor.strides)
    terms = [(index, stride) for index, stride in pairs if stride != 0 and index is not None]
    return _join(terms, defining)


def find_joined_values(function: Function, defining: Definitions) -> frozenset[Value]:
    """Coordinates that no address needs any more, and nothing else uses."""
    split: set[Value] = set()
    needed: set[Value] = set()
    for op in walk_function(function):
        if isinstance(op, (Load, Store, Atomic)):
            kept = {index for index, _ in index_terms(op.tensor, op.indices, defining)}
            split |= set(op.indices) - kept
            needed |= kept | _besides_indices(op)
        else:
            needed |= set(op.operand_values())
    return frozenset(
        value for value in split - needed if isinstance(defining.get(value), Elementwise)
    )


def _besides_indices(op: Load | Store | Atomic) -> set[Value]:
    """What an access reads otherwise; an index may be stored or added, too."""
    parts: list[Value | None] = [op.mask]
    if not isinstance(op, Atomic):
        parts.append(op.bases)
    else:
        parts.append(op.expected)
    if not isinstance(op, Load):
        parts.append(op.value)
    return {part for part in parts if part is not None}


def _join(terms: list[Term], defining: Definitions) -> list[Term]:
    for high in terms:
        for low in terms:
            joined = _try_join(high, low, defining)
            if joined is not None:
                rest = [term for term in terms if term is not high and term is not low]
                return _join([joined, *rest], defining)
    return terms


def _try_join(high: Term, low: Term, defining: Definitions) -> Term | None:
    quotient, remainder = defining.get(high[0]), defining.get(low[0])
    if not isinstance(quotient, Elementwise) or not isinstance(remainder, Elementwise):
        return None
    if (quotient.fn, remainder.fn) != ("floordiv", "mod"):
        return None
    divisor = _constant(quotient.args[1], defining)
    is_same = quotient.args[0] is remainder.args[0]
    if not is_same or divisor is None or divisor != _constant(remainder.args[1], defining):
        return None
    is_contiguous = isinstance(low[1], int) and high[1] == divisor * low[1]
    return (quotient.args[0], low[1]) if is_contiguous else None


def _constant(value: Value, defining: Definitions) -> int | None:
    op = defining.get(value)
    while isinstance(op, (Broadcast, ExpandDims)):
        op = defining.get(op.x)
    return int(op.value) if isinstance(op, Full) else None
