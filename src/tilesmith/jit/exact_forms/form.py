"""A kernel with runtime sizes, bound to one set of them: its host code is worked out for these."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from tilesmith.jit.fixed_host.calls import FixedCalls


class _Bound(Protocol):
    """A bound kernel."""

    call: Callable[..., Any]
    recorded: Callable[..., Any] | None
    fixed_calls: FixedCalls | None
    exact_forms: list[ExactForm]


class ExactForm:
    """What recognised arguments of one set of sizes find in the place of their bound kernel."""

    def __init__(self, bound: _Bound) -> None:
        self.bound = bound
        self.call: Callable[..., Any] = self._first_call
        """As that of the kernel, with arguments of these sizes."""
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
        self.call = replace(fixed, settle=self._settle, owner=id(self)).call()
        return self.call(*args)

    def _settle(self, call: Callable[..., Any]) -> None:
        if self.bound.fixed_calls is not None:
            self.call = call
