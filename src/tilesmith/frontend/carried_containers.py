"""Containers of device values where control flow meets: spread into items, put together again.

Loops carry and branches merge single values. A list, tuple or dict goes in and comes out item by
item, so ``parts[0] = parts[0] + x[t]`` in a loop means what it says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tilesmith.frontend.containers import items_of, rebuilt
from tilesmith.frontend.merging import State, Unbound, cannot_combine

Body = Callable[..., State]


@dataclass(frozen=True)
class Spread:
    """The values of some names, containers replaced by their items."""

    names: tuple[str, ...]
    """A name for each item, such as ``parts[0]``."""
    leaves: State
    _user_names: tuple[str, ...]
    _state: State

    def on_leaves(self, body: Body) -> Body:
        """``body``, a function of containers, as one of their items."""

        def run(*values: Any) -> State:
            others = len(values) - len(self.leaves)
            out = body(*values[:others], *self.joined(values[others:]))
            return self._leaves_of(out) if isinstance(out, tuple) else out

        return run

    def joined(self, leaves: Sequence[Any]) -> State:
        """New containers of the same forms with these items."""
        supply = iter(leaves)
        return tuple(_filled(value, supply) for value in self._state)

    def _leaves_of(self, state: State) -> State:
        triples = zip(self._user_names, self._state, state)
        return tuple(now for triple in triples for _, _, now in paired(*triple))


def spread(names: Sequence[str], state: State) -> Spread:
    """Spread the containers among the values of some names."""
    flat = [item for pair in zip(names, state) for item in _named_leaves(*pair)]
    leaves = tuple(value for _, value in flat)
    return Spread(tuple(name for name, _ in flat), leaves, tuple(names), state)


def paired(name: str, left: Any, right: Any) -> list[tuple[str, Any, Any]]:
    """Name and both values of every item that two values of one name have."""
    is_missing = isinstance(left, Unbound) or isinstance(right, Unbound)
    if is_missing or not (is_container(left) or is_container(right)):
        return [(name, left, right)]
    if _form(left) != _form(right):
        raise cannot_combine(name, left, right)
    sides = zip(_named_leaves(name, left), _named_leaves(name, right))
    return [(item, a, b) for (item, a), (_, b) in sides]


def joined_arms(left: State, right: State, leaves: Sequence[Any]) -> State:
    """What names are after a branch, from the items that ``paired`` gave for each."""
    supply = iter(leaves)
    return tuple(
        next(supply) if isinstance(b, Unbound) else _filled(a, supply) for a, b in zip(left, right)
    )


def is_container(value: Any) -> bool:
    """Whether it goes through control flow item by item."""
    return isinstance(value, (list, tuple, dict))


def _form(value: Any) -> Any:
    if not is_container(value):
        return None
    return type(value), [(item.suffix, _form(item.value)) for item in items_of(value) or ()]


def _named_leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if not is_container(value):
        yield name, value
        return
    for item in items_of(value) or ():
        yield from _named_leaves(f"{name}{item.suffix}", item.value)


def _filled(value: Any, supply: Iterator[Any]) -> Any:
    if not is_container(value):
        return next(supply)
    return rebuilt(value, [_filled(item.value, supply) for item in items_of(value) or ()])
