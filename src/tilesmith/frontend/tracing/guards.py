"""What must still hold at a launch for a trace to be used again.

A guard is an expression over captured names and the value that it had when traced. Launches test no
guards of arguments, since the specialization key covers them; saved modules test those too.
"""

from __future__ import annotations

import enum
import math
import re
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, NamedTuple

import torch

from tilesmith.ir.types import TensorType, plain_extents


class Guard(NamedTuple):
    """An expression over captured names, and the value it must have.

    It may use ``dynamic_form(shape, strides)``.
    """

    expression: str
    value: Any
    number: str = ""
    """Where the number stands that the trace took for a constant, if it is about one."""
    kept: Any = None
    """Stays alive with the guard, so that its id stays its own."""
    is_moving: bool = False
    """Whether it may fail though every name stands for the object that it stood for."""


def is_moving(guard: tuple[Any, ...]) -> bool:
    """Whether a guard may fail though all names stand for the same objects."""
    return isinstance(guard, Guard) and guard.is_moving


_COMPARED = (
    *(str, bytes, range, slice, torch.dtype, torch.device, torch.finfo, torch.iinfo),
    *(BuiltinFunctionType, type, enum.Enum),
)
_USABLE = (*_COMPARED, bool, int, float, complex, ModuleType)


def has_device_form(value: Any) -> bool:
    """Whether device code may use a host value that is no tensor and no container."""
    return value is None or isinstance(value, _USABLE) or callable(value)


def root_of(source: str) -> str:
    """The captured name that a launch expression starts from: ``xs`` of ``xs[1].shape``."""
    match = re.match(r"\w+", source)
    return match.group() if match else ""


class GuardList:
    """Collects the guards of one trace."""

    def __init__(self, keyed: frozenset[str]) -> None:
        self._keyed = keyed
        """Names whose values are part of the specialization key."""
        self.guards: list[Guard] = []
        self.covered: dict[str, Guard] = {}
        """The same of what the specialization key covers, by expression."""
        self.tensors: dict[str, TensorType] = {}
        """What the trace took for granted of each tensor, by where it stands."""
        self.moving: set[str] = set()
        """Where attributes of objects stand: no key covers them, whatever it says of the object."""

    def is_keyed(self, source: str) -> bool:
        """Whether the specialization key covers what stands at ``source``."""
        return root_of(source) in self._keyed and not self.is_found_by_code(source)

    def is_found_by_code(self, source: str) -> bool:
        """Whether device code looks there itself: in a module, at an attribute of an object."""
        return source.startswith(("__constants__[", *self.moving))

    def require(
        self, expression: str, value: Any, number: str = "", *, kept: Any = None, source: str = ""
    ) -> None:
        """The expression, about what stands at ``source``, must have this value."""
        is_moving = any(place in expression for place in self.moving)
        guard = Guard(expression, value, number, kept, is_moving)
        if self.is_keyed(source):
            self.covered[expression] = guard
        elif guard not in self.guards:
            self.guards.append(guard)

    def require_moving(self, expression: str, *, value: Any) -> None:
        """The same of an object that the names stand for, of which no key tells."""
        guard = Guard(expression, value, is_moving=True)
        if guard not in self.guards:
            self.guards.append(guard)

    def same(self, place: str, other: str) -> None:
        """One object stands at both places."""
        if place != other:
            self.require_moving(f"{place} is {other}", value=True)

    def constant(self, value: Any, source: str) -> None:
        """The trace took ``value`` for a constant."""
        if isinstance(value, FunctionType):
            # A lambda of host code is a new object at every call; its code is not. Comparing two
            # code objects would look at all their parts.
            code = value.__code__
            test = f"id(getattr({source}, '__code__', None))"
            self.require(test, id(code), kept=(code, value.__name__), source=source)
        elif isinstance(value, float) and (value == 0.0 or math.isnan(value)):
            self.require(f"repr({source})", repr(value), source, source=source)
        elif isinstance(value, (bool, int, float)):
            number = "" if isinstance(value, bool) else source
            test = f"({source}.__class__, {source})"
            self.require(test, (type(value), value), number, source=source)
        elif value is None or isinstance(value, _COMPARED):
            self.require(source, value, source=source)

    def container(self, value: Any, source: str) -> None:
        """The trace went through the items of ``value``: their number is fixed."""
        self.require(f"{source}.__class__", type(value), source=source)
        if isinstance(value, (list, tuple)):
            self.require(f"len({source})", len(value), source=source)
        elif isinstance(value, dict):
            self.require(f"tuple({source})", tuple(value), source=source)

    def tensor(self, tensor: torch.Tensor, tensor_type: TensorType, source: str) -> None:
        """The trace took what the type says about a tensor for granted."""
        self.tensors[source] = tensor_type
        if self.is_keyed(source):
            return
        self.require(f"{source}.__class__", type(tensor))
        self.require(f"{source}.dtype", tensor.dtype)
        extents = (*tensor_type.shape, *tensor_type.strides)
        if all(isinstance(extent, int) for extent in extents):
            layout = (tensor_type.shape, tensor_type.strides)
            self.require(f"({source}.shape, {source}.stride())", layout)
            return
        sizes, steps = plain_extents(tensor_type.shape), plain_extents(tensor_type.strides)
        form = f"dynamic_form({source}.shape, {source}.stride())"
        self.require(form, (sizes, steps, tensor_type.wide))
