"""Numbers that host code makes constants, computed from the arguments of any call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def where_possible(extractor: Callable[..., int]) -> Callable[..., int | None]:
    """None for arguments that have no such number: a tensor that another call leaves out."""

    def value_of(*args: Any) -> int | None:
        try:
            return extractor(*args)
        except (AttributeError, LookupError, TypeError):
            return None

    return value_of
