"""Exact forms that fit into memory: in float64, a part of the first dimension at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

LARGEST = 1 << 27
"""Elements of a float64 intermediate: 1 GiB."""

Form = Callable[..., Any]


def widened(form: Form) -> Form:
    """The same function of tensors upcast to float64; what is no float tensor stays as it is."""
    return lambda *arguments: form(*map(widen, arguments))


def widen(argument: Any) -> Any:
    is_float = isinstance(argument, torch.Tensor) and argument.is_floating_point()
    return argument.double() if is_float else argument


def parts(length: int, elements: int) -> Iterator[slice]:
    """Slices of a first dimension, for intermediates with so many elements in all."""
    step = max(1, length * LARGEST // max(elements, 1))
    for begin in range(0, length, step):
        yield slice(begin, begin + step)


class Joined:
    """A result whose parts along the first dimension are put where they belong as they come.

    To keep all and to join them at last would take twice the memory.
    """

    def __init__(self, length: int) -> None:
        self._length = length
        self._made: torch.Tensor | None = None

    def put(self, part: slice, piece: torch.Tensor) -> None:
        """Add a part."""
        if self._made is None:
            self._made = piece.new_empty([self._length, *piece.shape[1:]])
        self._made[part] = piece

    @property
    def whole(self) -> torch.Tensor:
        """All parts."""
        assert self._made is not None
        return self._made


def by_parts(form: Form, count: int, elements: Callable[..., int] | None = None) -> Form:
    """``form`` on slices of its first ``count`` arguments, which share a first dimension.

    ``elements`` tells the size of the largest intermediate from the arguments, by default that of
    the first one. Results are joined along their first dimension.
    """

    def joined(*arguments: Any) -> Any:
        together = elements(*arguments) if elements else arguments[0].numel()
        length, results = len(arguments[0]), list[Joined]()
        is_single = False
        for part in parts(length, together):
            found = form(*(sliced[part] for sliced in arguments[:count]), *arguments[count:])
            is_single = not isinstance(found, tuple)
            pieces = (found,) if is_single else found
            results = results or [Joined(length) for _ in pieces]
            for result, piece in zip(results, pieces):
                result.put(part, piece)
        wholes = tuple(result.whole for result in results)
        return wholes[0] if is_single else wholes

    return joined
