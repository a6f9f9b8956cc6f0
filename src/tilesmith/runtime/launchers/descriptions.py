"""Arguments that describe tensors to the hardware's copy engine, kept by address and sizes."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from tilesmith.artifacts import TensorDescription

MAX_KEPT = 512
"""Addresses repeat, since allocators reuse memory; a table that still grows is emptied."""


class Address:
    """Stands for a tensor in a descriptor: Triton asks for its address only."""

    __slots__ = ("data_ptr",)

    def __init__(self, address: int) -> None:
        self.data_ptr = lambda: address


class Descriptors:
    """Descriptors of one parameter; ``kind`` is Triton's class of them.

    Triton checks what it is given, which takes longer than all else about a launch: descriptors
    that passed serve again wherever address and sizes are the same. No tensor is kept alive.
    """

    def __init__(self, description: TensorDescription, names: Sequence[str], kind: Any) -> None:
        text = f"lambda {', '.join(names)}: {description.call}"
        self.construct = eval(text, {"TensorDescriptor": kind})
        """A descriptor of the tensor itself, made from all parameters."""
        self.kept: dict[Hashable, Any] = {}

    def keep(self, key: Hashable, arguments: Sequence[Any]) -> Any:
        """The descriptor for these parameters, from now on also found in ``kept``."""
        made = self.construct(*arguments)
        made.base = Address(made.base.data_ptr())
        if len(self.kept) >= MAX_KEPT:
            self.kept.clear()
        self.kept[key] = made
        return made
