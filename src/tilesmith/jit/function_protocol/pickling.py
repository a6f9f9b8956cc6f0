"""How a kernel is pickled: by a name that leads to it, else as its function with what it was given.

What it has compiled stays behind.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

import tilesmith.exc as errors


def reduced(kernel: Any, function: Any, given: Mapping[str, Any]) -> str | tuple[Any, ...]:
    """What ``__reduce__`` of a kernel returns; ``given`` are keywords of its class."""
    module = sys.modules.get(function.__module__)
    others = [name for name, value in vars(module).items() if value is kernel] if module else []
    for name in (function.__qualname__, *others):
        if _find(module, name) is kernel:
            return name
    if _find(module, function.__qualname__) is function:
        return partial(type(kernel), **given), (function,)
    raise errors.KernelNotPicklable(
        function=function.__name__, name=f"{function.__module__}.{function.__qualname__}"
    )


def _find(owner: Any, path: str) -> Any:
    for name in path.split("."):
        owner = getattr(owner, name, None)
    return owner
