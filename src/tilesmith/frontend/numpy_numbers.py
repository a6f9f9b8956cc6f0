"""Numbers of numpy among arguments and captured values: they count as Python's."""

from __future__ import annotations

import sys
from dataclasses import is_dataclass
from typing import Any

from tilesmith.frontend.containers import Arguments, items_of, rebuilt


def plain_numbers(args: tuple[Any, ...], num_kept: int = 0) -> tuple[Any, ...]:
    """The arguments with Python's numbers in place of numpy's; the same object if it has none.

    The first ``num_kept`` stay what they are: the ``self`` of a method.
    """
    kinds = _numpy_kinds()
    if not any(isinstance(argument, kinds) or _may_hold(argument) for argument in args):
        return args
    plain = [_plain(argument, kinds) for argument in args[num_kept:]]
    is_same = all(new is old for new, old in zip(plain, args[num_kept:]))
    return args if is_same else Arguments((*args[:num_kept], *plain))


def _may_hold(argument: Any) -> bool:
    return isinstance(argument, (list, tuple, dict)) or is_dataclass(argument)


def plain_number(value: Any) -> Any:
    """Python's number for one of numpy's; anything else as it is."""
    return value.item() if isinstance(value, _numpy_kinds()) else value


def _numpy_kinds() -> tuple[type, ...]:
    """Types of numpy's numbers; whoever has one has loaded it."""
    numpy = sys.modules.get("numpy")
    return () if numpy is None else (numpy.bool_, numpy.integer, numpy.floating)


def _plain(value: Any, kinds: tuple[type, ...]) -> Any:
    if isinstance(value, kinds):
        return value.item()
    items = items_of(value)
    if not items:
        return value
    plain = [_plain(item.value, kinds) for item in items]
    is_same = all(new is item.value for new, item in zip(plain, items))
    return value if is_same else rebuilt(value, plain)
