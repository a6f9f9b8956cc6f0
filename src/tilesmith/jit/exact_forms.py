"""A kernel that makes numbers of its arguments constants, for one set of them.

Its host code is worked out for these numbers, and for these sizes where they are runtime values.
The numbers can be computed from the arguments of any call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from tilesmith.jit.fixed_host.calls import FixedCalls


class _Bound(Protocol):
    """A bound kernel."""

    call: Callable[..., Any]
    recorded: Callable[..., Any] | None
    fixed_calls: FixedCalls | None
    exact_forms: list[ExactForm]


class ExactForm:
    """What recognised arguments of one set of numbers find in the place of their bound kernel."""

    def __init__(self, bound: _Bound) -> None:
        self.bound = bound
        self.call: Callable[..., Any] = self._first_call
        """As that of the kernel, with arguments of these sizes and numbers."""
        bound.exact_forms.append(self)

    @property
    def recorded(self) -> Callable[..., Any] | None:
        """As that of the kernel."""
        return self.bound.recorded

    def __getattr__(self, name: str) -> Any:
        return getattr(self.bound, name)

    def forget(self) -> None:
        """The kernel has another config."""
        self.call = self._first_call

    def _first_call(self, *args: Any) -> Any:
        fixed = self.bound.fixed_calls
        if fixed is None:
            return self.bound.call(*args)
        self.call = replace(fixed, settle=partial(self._settle, fixed), owner=id(self)).call()
        return self.call(*args)

    def _settle(self, fixed: FixedCalls, call: Callable[..., Any]) -> None:
        if self.bound.fixed_calls is fixed:  # the kernel has the same config still
            self.call = call


def where_possible(extractor: Callable[..., int]) -> Callable[..., int | None]:
    """None for arguments that have no such number: a tensor that another call leaves out."""

    def value_of(*args: Any) -> int | None:
        try:
            return extractor(*args)
        except (AttributeError, LookupError, TypeError):
            return None

    return value_of
