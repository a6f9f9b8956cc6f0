"""Other names of parameters of the language: programs written for other versions pass them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def also_named(**others: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A function that takes ``others`` by keyword too: each stands for the parameter it names."""

    def rename(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            if not kwargs.keys().isdisjoint(others):
                kwargs = {others.get(name, name): value for name, value in kwargs.items()}  # type: ignore[assignment]
            return function(*args, **kwargs)

        return call

    return rename
