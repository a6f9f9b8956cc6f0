"""A call that is a mistake, and the class it must raise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import torch


class Case(NamedTuple):
    """One mistake. Where it is in the call and not in a line of a kernel, it has no place."""

    call: Callable[..., object]
    error: type[Exception]
    args: tuple[Any, ...] = ()
    keywords: Mapping[str, Any] = MappingProxyType({})
    has_place: bool = True

    @property
    def name(self) -> str:
        return "-".join([self.call.__name__, *self.keywords])


def row() -> torch.Tensor:
    return torch.ones(8)


def matrix(columns: int = 8) -> torch.Tensor:
    return torch.ones(8, columns)


X = (row(),)
XX = (matrix(),)
