"""How many plain elements take as long as one that much is computed for.

Threads and programs are worth their start where elements are many, or dear. Most ops are one
instruction for a vector, functions are many; what a plain element does besides being moved is free.
"""

from __future__ import annotations

from collections.abc import Iterable

from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.elementwise import Elementwise

LAST_CACHE_BYTES = 32 << 20
"""Of which all cores have one together, as far as is known."""
FREE_INSTRUCTIONS = 16
"""For a vector of elements: so many take as long as bringing it from the second cache and back."""
_OF_FUNCTIONS = {"mulhi": 6, "div": 8, "sqrt": 8, "rsqrt": 8, "fmod": 64, "mod": 64, "pow": 48}
_OF_TRANSCENDENTALS = 16


def elements_worth(ops: Iterable[Operation]) -> int:
    """What one element counts for that these ops compute, at least 1."""
    return max(1, sum(map(_instructions, ops)) // FREE_INSTRUCTIONS)


def hides_loads(ops: Iterable[Operation]) -> bool:
    """Whether computing an element takes as long as bringing it from the second cache."""
    return sum(map(_instructions, ops)) >= FREE_INSTRUCTIONS


def _instructions(op: Operation) -> int:
    if not isinstance(op, Elementwise) or not op.result.tile.rank:
        return 0
    usual = _OF_TRANSCENDENTALS if op.function.is_transcendental else 1
    return _OF_FUNCTIONS.get(op.fn, usual)
