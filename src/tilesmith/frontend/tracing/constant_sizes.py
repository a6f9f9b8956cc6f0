"""Which sizes and strides of tensors are constants where shapes are dynamic.

A size is one if host code specialises that very size, or makes the tensor with a plain number. That
another size happens to equal it says nothing. Only where device code uses the two as one dimension
the other becomes a constant too, checked at each launch: then the kernel is traced again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

Axis = tuple[int, str, int]
"""A tensor by its identity, "size" or "stride", and the number of one of its axes."""


def place_of(tensor: torch.Tensor, kind: str, axis: int) -> Axis:
    """Where a size or stride is read."""
    return id(tensor), kind, axis % tensor.dim()


@dataclass
class ConstantSizes:
    """What is known from one run of host code, and from attempts before it."""

    expressions: frozenset[str] = frozenset()
    """Launch expressions of sizes that met constants in an earlier attempt."""
    shared: frozenset[str] = frozenset()
    """Those of sizes that equal a constant and met each other in an earlier attempt."""
    takes_equal: bool = False
    """The last resort: every size that equals a constant is one."""
    wanted: set[str] = field(default_factory=set[str])
    """Launch expressions of sizes that met constants in this attempt."""
    wanted_shared: set[str] = field(default_factory=set[str])
    """Launch expressions of sizes that met each other in this attempt."""
    _values: set[int] = field(default_factory=set[int])
    _axes: set[Axis] = field(default_factory=set[Axis])
    _kept: list[torch.Tensor] = field(default_factory=list[torch.Tensor])
    """Tensors of host code: while they live, nothing else has their identity."""

    def note_value(self, value: int, axis: Axis | None = None) -> None:
        """A number is a constant, and so is the size that it was read from."""
        self._values.add(value)
        if axis is not None:
            self._axes.add(axis)

    def note_made(self, tensor: torch.Tensor, sizes: Iterable[Any]) -> None:
        """A tensor was made with these sizes: plain numbers among them are constants."""
        self._kept.append(tensor)
        for axis, size in enumerate(sizes):
            if type(size) is int and size > 1:
                self.note_value(size, place_of(tensor, "size", axis))

    def note_like(self, tensor: torch.Tensor, original: torch.Tensor) -> None:
        """A tensor was made with the sizes of another."""
        self._kept.append(tensor)
        for axis in range(original.dim()):
            if place_of(original, "size", axis) in self._axes:
                self._axes.add(place_of(tensor, "size", axis))

    def is_constant(self, expression: str, value: int, axis: Axis | None = None) -> bool:
        """Whether the size or number that a launch expression gives is a constant."""
        if axis in self._axes or expression in self.expressions:
            return True
        is_stride = axis is not None and "stride" in axis
        return self.takes_equal and value in self._values and not is_stride

    def note_met(self, expression: str, constant: int) -> None:
        """A runtime size met a constant that it equals; host code's own constants are meant."""
        if constant in self._values:
            self.wanted.add(expression)

    def shares_symbol(self, expression: str, value: int) -> bool:
        """Whether a runtime size is taken for the same as others that equal it.

        Not at once where it equals a constant: only one of them may turn out to be that constant.
        """
        return value not in self._values or expression in self.shared

    def after_failure(self) -> ConstantSizes | None:
        """What to try next, when device code could not be traced; None: the error is the user's."""
        if self.takes_equal or not (self._values or self.wanted):
            return None
        new, new_shared = self.wanted - self.expressions, self.wanted_shared - self.shared
        return ConstantSizes(
            self.expressions | new, self.shared | new_shared, takes_equal=not (new or new_shared)
        )
