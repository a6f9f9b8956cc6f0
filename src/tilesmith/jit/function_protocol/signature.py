"""From what a caller passes to one value for each parameter, in the order of the signature.

``*rest`` is one value, a tuple; parameters after it come by keyword. Numbers of numpy become
Python's: device code has no other kinds.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, cast

import tilesmith.exc as errors
from tilesmith.diagnostics.wording import kind_of
from tilesmith.frontend.containers import Arguments, plain_numbers

_REQUIRED = inspect.Parameter.empty
_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_OTHERS = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.KEYWORD_ONLY)
ALLOWED = (*_BY_POSITION, *_OTHERS)
"""Kinds of parameters that a kernel may have."""


def is_method(function: Any) -> bool:
    """Whether a function was written directly in the body of a class."""
    owner, _, _ = getattr(function, "__qualname__", "").rpartition(".")
    return bool(owner) and owner.rpartition(".")[2] != "<locals>"


class KernelSignature:
    """The parameters of a kernel."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.name = function.__name__
        self.is_method = is_method(function)
        self.plain = inspect.signature(function)
        self.names = tuple(self.plain.parameters)
        kinds = [parameter.kind for parameter in self.plain.parameters.values()]
        self.is_positional = all(kind in _BY_POSITION for kind in kinds)
        """Whether the positional arguments of a call are the values of the parameters."""

    @functools.cached_property
    def defaults(self) -> dict[int, tuple[Any, ...]]:
        """The defaults that complete a number of positional arguments, where that is allowed."""
        if not self.is_positional:
            return {}
        defaults = [parameter.default for parameter in self.plain.parameters.values()]
        first = next((i for i, d in enumerate(defaults) if d is not _REQUIRED), len(defaults))
        return {count: tuple(defaults[count:]) for count in range(first, len(defaults) + 1)}

    def normalize(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """A value for each parameter: keywords placed, defaults applied."""
        tail = None if kwargs else self.defaults.get(len(args))
        if tail is not None:
            return args + tail
        try:
            bound = self.plain.bind(*args, **kwargs)
        except TypeError as error:
            is_surplus = self.is_positional and len(args) > len(self.names)
            counted = f"expected: {len(self.names)} got: {len(args)}"
            surplus = f"Too many arguments passed to the kernel, {counted}."
            unknown = [name for name in kwargs if name not in self.names]
            if unknown:
                surplus, is_surplus = f"it has no parameter `{unknown[0]}`", True
            raise self._mistake(surplus if is_surplus else str(error)) from error
        bound.apply_defaults()
        return Arguments(bound.arguments.values())

    def unpack(self, args: object) -> tuple[Any, ...]:
        """The same from a tuple or list; a lone tensor would be taken apart into its rows."""
        if isinstance(args, Arguments):
            return args
        if isinstance(args, (tuple, list)):
            return self.plain_numbers(self.normalize(*cast("Sequence[Any]", args)))
        raise self._mistake(f"its arguments come in a tuple, found {kind_of(args)}")

    def complete(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """A value for each parameter, from positional arguments or what ``normalize`` gave."""
        if isinstance(args, Arguments):
            return args
        is_whole = self.is_positional and len(args) == len(self.names)
        return self.plain_numbers(args if is_whole else self.normalize(*args))

    def plain_numbers(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Complete arguments with Python's numbers; the same object if there are no others."""
        return plain_numbers(args, num_kept=int(self.is_method))

    def _mistake(self, problem: str) -> errors.BaseError:
        return errors.WrongArguments(function=self.name, problem=problem, signature=str(self.plain))
