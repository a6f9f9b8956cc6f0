"""Which axes a reshape merges and splits: the result's dimensions, factor by factor.

A tile axis may be merged with others but never split: how many of its lanes are valid is known only
at run time. Factors keep their order, so that lanes are the same on every backend.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from tilesmith.ir.types import ONE, Dim, Shape


def divide_axes(shape: Shape, wanted: Sequence[Dim | None]) -> Shape | None:
    """The dimensions of ``shape`` reinterpreted as ``wanted``; None stands for what is left.

    The result's dimensions have their factors in the order of ``shape``'s. No result where the
    numbers of elements differ or a tile axis would have to be split.
    """
    if [*shape] == [*wanted]:
        return shape
    found = _divide(shape, wanted)
    return _divide_nothing(shape, wanted) if found is None else found


def _divide_nothing(shape: Shape, wanted: Sequence[Dim | None]) -> Shape | None:
    """A shape without elements, as any other one without; the rest must be 0 to make it so."""
    given = [dim for dim in wanted if dim is not None]
    is_empty = any(0 in dim.factors for dim in given)
    if not any(0 in dim.factors for dim in shape) or is_empty == (None in wanted):
        return None
    return tuple(Dim.of(0) if dim is None else dim for dim in wanted)


def _divide(shape: Shape, wanted: Sequence[Dim | None]) -> Shape | None:
    missing = wanted.index(None) if None in wanted else len(wanted)
    front = _Factors(shape)
    before = [front.take(dim) for dim in wanted[:missing] if dim is not None]
    back = _Factors(tuple(reversed([Dim(tuple(reversed(d.factors))) for d in front.rest()])))
    after = [back.take(dim) for dim in reversed(wanted[missing + 1 :]) if dim is not None]
    left = [Dim(tuple(reversed(d.factors))) for d in reversed(back.rest())]
    found = [*before]
    if missing < len(wanted):
        found.append(_product(left))
    elif left:
        return None
    found.extend(None if dim is None else Dim(dim.factors[::-1]) for dim in reversed(after))
    complete = tuple(dim for dim in found if dim is not None)
    return complete if len(complete) == len(found) else None


def _product(dims: Sequence[Dim]) -> Dim:
    total = ONE
    for dim in dims:
        total = total * dim
    return total


class _Factors:
    """The factors of a shape, taken from the front. Neighbouring constants count as one."""

    def __init__(self, shape: Shape) -> None:
        self._left = list(_product(shape).factors)

    def rest(self) -> Shape:
        """What was not taken."""
        return tuple(Dim.of(factor) for factor in self._left)

    def take(self, dim: Dim) -> Dim | None:
        """The dimension of these factors at the front, in their order there."""
        symbols, constant = list(dim.symbols), 1
        for factor in dim.factors:
            constant *= factor if isinstance(factor, int) else 1
        taken = ONE
        while symbols or constant != 1:
            factor = self._left[0] if self._left else None
            if isinstance(factor, str) and factor in symbols:
                symbols.remove(factor)
                taken = taken * Dim.of(self._left.pop(0))
            elif isinstance(factor, int) and constant != 1:
                shared = gcd(factor, constant)
                if shared not in (factor, constant) or not (shared or factor == constant):
                    return None
                taken = taken * Dim.of(shared)
                constant = constant // shared if shared else 1
                self._put_back(factor // shared if shared else 1)
            else:
                return None
        return taken

    def _put_back(self, factor: int) -> None:
        self._left[:1] = [] if factor == 1 else [factor]
