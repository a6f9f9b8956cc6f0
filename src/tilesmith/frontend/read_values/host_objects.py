"""The ``self`` of a method in device code, whose attributes are captured values of host code."""

from __future__ import annotations

from types import MethodType
from typing import Any, Protocol

import torch

from tilesmith.frontend.containers import items_of, plain_number
from tilesmith.frontend.language.host_functions import constexpr
from tilesmith.frontend.tracing.guards import has_device_form


class _Captures(Protocol):
    def wrap(self, value: Any, source: str) -> Any: ...

    def method(self, method: MethodType, source: str, owner: HostObjectView) -> MethodType: ...


class HostObjectView:
    """An object of the host: each attribute is captured when it is read."""

    def __init__(self, captures: _Captures, value: Any, source: str) -> None:
        self.__dict__.update(_captures=captures, _value=value, _source=source)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._value, name)
        source = f"{self._source}.{name}"
        if isinstance(value, MethodType) and value.__self__ is self._value:
            return self._captures.method(value, source, self)
        if is_plain_object(value):
            return HostObjectView(self._captures, value, source)
        return self._captures.wrap(value, source)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """A module that is called runs its ``forward``."""
        name = "forward" if isinstance(self._value, torch.nn.Module) else "__call__"
        return self.__getattr__(name)(*args, **kwargs)


def is_plain_object(value: Any) -> bool:
    """Whether a value is nothing but an object with attributes."""
    if isinstance(value, torch.nn.Module):
        return True
    is_known = isinstance(value, (torch.Tensor, constexpr, type)) or items_of(value) is not None
    return not is_known and not has_device_form(value) and plain_number(value) is value
