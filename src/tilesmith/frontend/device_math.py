"""Python's ``math`` as device code sees it: runtime numbers go to torch's functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tilesmith.frontend.values import TileValue, dispatch

_OTHER_NAMES = {"fabs": "abs"}
_BY_METHODS = frozenset({"floor", "ceil", "trunc"})
"""Python asks the value itself for these; they give integers."""


class DeviceMath:
    """Stands for the module; everything that is no runtime number is the module's own business."""

    def __getattr__(self, name: str) -> Any:
        plain = getattr(math, name)
        return self._lifted(name, plain) if callable(plain) and name not in _BY_METHODS else plain

    def _lifted(self, name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
        def function(*args: Any, **kwargs: Any) -> Any:
            if any(isinstance(arg, TileValue) for arg in args):
                return dispatch(_OTHER_NAMES.get(name, name), args, kwargs)
            return plain(*args, **kwargs)

        return function
