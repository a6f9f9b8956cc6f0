"""Containers that arguments and captured values may be: their items, and copies with others.

Lists, tuples, named tuples, dicts and dataclass instances; anything else is a leaf.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from typing import Any

import torch


@dataclass(frozen=True)
class Item:
    """One item of a container."""

    value: Any
    suffix: str
    """How Python code spells the access: ``[0]``, ``['a']`` or ``.name``."""
    get: Callable[[Any], Any]
    """Finds the item in another container of the same form."""


def items_of(value: Any) -> list[Item] | None:
    """The items of a container, in a fixed order; None for a leaf."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return [_attribute(value, name) for name in value._fields]  # type: ignore[attr-defined]
    if isinstance(value, (list, tuple)):
        return [Item(item, f"[{i}]", itemgetter(i)) for i, item in enumerate(value)]
    if isinstance(value, dict):
        return [Item(item, f"[{key!r}]", itemgetter(key)) for key, item in value.items()]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [_attribute(value, field.name) for field in dataclasses.fields(value)]
    return None


def _attribute(value: Any, name: str) -> Item:
    return Item(getattr(value, name), f".{name}", attrgetter(name))


def rebuilt(value: Any, items: Sequence[Any]) -> Any:
    """A container like ``value`` with these items, in the order of ``items_of``."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*items)
    if isinstance(value, (list, tuple)):
        return list(items) if isinstance(value, list) else tuple(items)
    if isinstance(value, dict):
        return dict(zip(value, items))
    names = [field.name for field in dataclasses.fields(value)]
    # Not through __init__: it may compute, or take other arguments than the fields.
    copy = object.__new__(type(value))
    for name, item in zip(names, items):
        object.__setattr__(copy, name, item)
    return copy


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """All tensors of a nested value, in order."""
    if isinstance(value, torch.Tensor):
        yield value
        return
    for item in items_of(value) or ():
        yield from tensors_in(item.value)


def map_tensors(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The same nested value with every tensor changed, in order."""
    if isinstance(value, torch.Tensor):
        return change(value)
    items = items_of(value)
    if items is None:
        return value
    return rebuilt(value, [map_tensors(item.value, change) for item in items])


def cell_contents(cell: Any) -> Any:
    """What a closure cell holds; None while it is empty."""
    try:
        return cell.cell_contents
    except ValueError:
        return None
