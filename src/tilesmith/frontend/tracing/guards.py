"""What must still hold at a launch for a trace to be used again.

A guard is an expression over captured names and the value that it had when traced. Arguments need
none, since the specialization key covers them; what host code computes and what globals hold does.
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

    def is_keyed(self, source: str) -> bool:
        """Whether the specialization key covers what stands at ``source``."""
        return root_of(source) in self._keyed

    def require(self, expression: str, value: Any, number: str = "", *, kept: Any = None) -> None:
        """The expression must have this value."""
        guard = Guard(expression, value, number, kept)
        if guard not in self.guards:
            self.guards.append(guard)

    def constant(self, value: Any, source: str) -> None:
        """The trace took ``value`` for a constant."""
        if self.is_keyed(source):
            return
        if isinstance(value, FunctionType):
            # A lambda of host code is a new object at every call; its code is not. Comparing two
            # code objects would look at all their parts.
            code = value.__code__
            self.require(f"id(getattr({source}, '__code__', None))", id(code), kept=code)
        elif isinstance(value, float) and (value == 0.0 or math.isnan(value)):
            self.require(f"repr({source})", repr(value), number=source)
        elif isinstance(value, (bool, int, float)):
            number = "" if isinstance(value, bool) else source
            self.require(f"({source}.__class__, {source})", (type(value), value), number)
        elif value is None or isinstance(value, _COMPARED):
            self.require(source, value)

    def container(self, value: Any, source: str) -> None:
        """The trace went through the items of ``value``: their number is fixed."""
        if self.is_keyed(source):
            return
        self.require(f"{source}.__class__", type(value))
        if isinstance(value, (list, tuple)):
            self.require(f"len({source})", len(value))
        elif isinstance(value, dict):
            self.require(f"tuple({source})", tuple(value))

    def tensor(self, tensor: torch.Tensor, tensor_type: TensorType, source: str) -> None:
        """The trace took what the type says about a tensor for granted."""
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
