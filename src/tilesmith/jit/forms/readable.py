"""Whether native code (``runtime/calls``) sees all of an argument that its key has.

It looks into containers and closures. What it cannot look into is found by its key.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from types import FunctionType
from typing import Any

import torch

from tilesmith.frontend.containers import cell_contents
from tilesmith.frontend.language.host_functions import constexpr
from tilesmith.frontend.source.names import is_library
from tilesmith.jit.forms.matches import HELD, PLAIN

_TENSORS = (torch.Tensor, torch.nn.Parameter)
_NAMED_ITEM = type(inspect.getattr_static(constexpr, "value"))
"""What stands for an item of a named tuple in its class."""


def are_readable(args: Sequence[Any]) -> bool:
    """Whether native code can tell arguments of this form from others."""
    return all(_is_closure(argument) or is_readable(argument) for argument in args)


def is_readable(argument: Any) -> bool:
    """The same of one argument, or of what a container holds."""
    kind = type(argument)
    if kind is dict:
        return all(type(key) is str and is_readable(held) for key, held in argument.items())
    if kind in (list, tuple) or _is_plainly_named(kind):
        return all(map(is_readable, argument))
    if kind is FunctionType:
        return not any(getattr(argument, held) for held in HELD)
    return kind in PLAIN or kind in _TENSORS


def _is_plainly_named(kind: type) -> bool:
    """Whether it is a class of named tuples, each of whose names stands for its item."""
    if not issubclass(kind, tuple) or not hasattr(kind, "_fields"):
        return False
    names: tuple[str, ...] = kind._fields  # type: ignore[attr-defined]
    found = [inspect.getattr_static(kind, name, None) for name in names]
    items = [g.__reduce__()[1][0] for g in found if isinstance(g, _NAMED_ITEM)]
    return items == list(range(len(names)))


def _is_closure(argument: Any) -> bool:
    """Whether it is a function whose cells hold tensors and plain values, and that has no more."""
    if type(argument) is not FunctionType or is_library(argument):
        return False
    if argument.__defaults__ or argument.__kwdefaults__:
        return False
    kinds = [type(cell_contents(cell)) for cell in argument.__closure__ or ()]
    return all(kind in (*PLAIN, *_TENSORS) for kind in kinds)
