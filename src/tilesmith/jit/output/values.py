"""Values as Python expressions, for files that repeat a call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from math import isfinite
from typing import Any, cast

import torch

from tilesmith.diagnostics.wording import kind_of
from tilesmith.frontend.language.host_functions import constexpr

MAX_WRITTEN = 4096
"""Integers of a tensor that are written out: which they are decides what a kernel reads."""
TENSOR_FUNCTION = '''
def tensor(shape, strides, dtype, device="cpu", values=None, between=None, is_sorted=False):
    """A tensor over the values given, over integers between two, or over random numbers."""
    length = 1 + sum((n - 1) * s for n, s in zip(shape, strides)) if all(shape) else 0
    if values is not None:
        data = torch.tensor(values, dtype=dtype)
    elif between is not None:
        data = torch.randint(between[0], between[1] + 1, (length,)).to(dtype)
    else:
        data = torch.randn(length).to(dtype)
    if is_sorted:
        data = data.sort().values
    return data.to(device).as_strided(shape, strides)
'''


class ValueWriter:
    """Writes values; ``name_of`` gives functions and classes a name, or none."""

    def __init__(self, name_of: Callable[[Any], str]) -> None:
        self._name_of = name_of
        self.missing: list[str] = []

    def assignments(self, names: Sequence[str], values: Sequence[Any]) -> Iterator[str]:
        """One line for each argument; the same object under two names stays the same."""
        known: dict[int, str] = {}
        for name, value in zip(names, values):
            is_tensor = isinstance(value, torch.Tensor)
            same = known.get(id(value)) if is_tensor else None
            yield f"{name} = {same or self.text(value)}"
            known.setdefault(id(value), name)

    def text(self, value: Any) -> str:
        """An expression that gives the value, or one like it."""
        if isinstance(value, torch.Tensor):
            return tensor_text(value)
        if isinstance(value, constexpr):
            return f"tilesmith.language.constexpr({self.text(value.value)})"
        if isinstance(value, torch.device):
            return f"torch.device({str(value)!r})"
        if isinstance(value, float) and not isfinite(value):
            return f"float('{value}')"
        if value is None or isinstance(value, (bool, int, float, str, torch.dtype)):
            return repr(value)
        if isinstance(value, Enum) or callable(value):
            return self._named(value)
        return self._container(value)

    def _named(self, value: Any) -> str:
        if isinstance(value, Enum):
            owner = self._name_of(type(value))
            return f"{owner}.{value.name}" if owner else self._missing(value)
        return self._name_of(value) or self._missing(value)

    def _container(self, value: Any) -> str:
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return self._call(value, cast("Any", value)._fields)
        if is_dataclass(value) and not isinstance(value, type):
            return self._call(value, [item.name for item in fields(value)])
        if isinstance(value, Mapping):
            items = cast("Mapping[Any, Any]", value).items()
            return f"{{{', '.join(f'{key!r}: {self.text(item)}' for key, item in items)}}}"
        if isinstance(value, (list, tuple)):
            texts = [self.text(item) for item in cast("Sequence[Any]", value)]
            listed = ", ".join(texts)
            if isinstance(value, list):
                return f"[{listed}]"
            return f"({listed}{',' if len(texts) == 1 else ''})"
        return self._missing(value)

    def _call(self, value: Any, names: Sequence[str]) -> str:
        owner = self._name_of(type(value))
        given = ", ".join(f"{name}={self.text(getattr(value, name))}" for name in names)
        return f"{owner}({given})" if owner else self._missing(value)

    def _missing(self, value: Any) -> str:
        name = getattr(value, "__name__", "")
        self.missing.append(f"{kind_of(value)}{f' `{name}`' if name else ''}")
        return "None"


def tensor_text(value: torch.Tensor) -> str:
    """A call of ``tensor`` that gives a tensor of the same form."""
    shape, strides = tuple(value.shape), tuple(value.stride())
    given = f"{shape}, {strides}, {value.dtype}"
    if value.device.type != "cpu":
        given += f", {str(value.device)!r}"
    return f"tensor({given}{_content(value)})"


def _content(value: torch.Tensor) -> str:
    """Of integers and truth values what they are, or at least between which they lie."""
    if value.is_floating_point() or value.is_complex() or value.is_meta or not value.numel():
        return ""
    length = 1 + sum((n - 1) * s for n, s in zip(value.shape, value.stride()))
    whole = value.detach().as_strided((length,), (1,))
    if length <= MAX_WRITTEN:
        return f", values={whole.tolist()}"
    numbers = whole.to(torch.int64)
    low, high = int(numbers.min()), int(numbers.max())
    is_sorted = bool((numbers[1:] >= numbers[:-1]).all())
    return f", between=({low}, {high})" + (", is_sorted=True" if is_sorted else "")
