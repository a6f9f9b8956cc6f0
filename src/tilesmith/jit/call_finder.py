"""From the arguments of a call to the kernel bound for them, in one generated function.

It tells combinations of argument types apart one after the other. For each it first tries a form
that was seen before, then the key.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from tilesmith.jit.call_keys import CallKeys, Types
from tilesmith.jit.call_matches import Match, compile_match, first_tensor, share_storage

MAX_TYPES = 8
"""Combinations of types that are told apart; others are found more slowly."""
MAX_FORMS = 256
"""Forms of arguments that are known without their key, for each combination."""


class Bound(Protocol):
    """What is found."""

    @property
    def written_arguments(self) -> frozenset[int]:
        """Positions of arguments whose memory it writes."""
        ...


def _find_nothing(*args: Any) -> None:
    """What ``find`` is before the first call."""


class CallFinder:
    """Looks arguments up in a table that is filled by key."""

    def __init__(self, keys: CallKeys, table: Mapping[Hashable, Bound]) -> None:
        self._keys = keys
        self._table = table
        self.find: Callable[..., Any] = _find_nothing
        """A function of all arguments: what the table has for them, None if nothing is found."""
        self._forms: dict[Types, dict[Hashable, tuple[Match, Any]]] = {}
        """By the shape of the first tensor, a test of all arguments and what it stands for."""

    def forget(self) -> None:
        """Start anew: keys are made by other rules, or the table is empty."""
        self.find = _find_nothing
        self._forms = {}

    def add(self, args: tuple[Any, ...]) -> None:
        """Find arguments like these from now on; the table has an entry for them."""
        types = tuple(map(type, args))
        if types not in self._forms:
            if len(self._forms) == MAX_TYPES:
                return
            self._forms[types] = {}
            self.find = self._compile(types, self.find)
        position = self._position(types)
        if position is not None:
            self._add_form(args, args[position].shape, self._forms[types])

    def _add_form(
        self,
        args: tuple[Any, ...],
        shape: Hashable,
        forms: dict[Hashable, tuple[Match, Any]],
    ) -> None:
        names, _ = self._keys.expression(tuple(map(type, args)))
        found = self._table[self._keys.key(args)]
        match = compile_match(names, args, found.written_arguments)
        if len(forms) == MAX_FORMS:
            forms.clear()
        if match(*args) and not (self._keys.is_alias_sensitive and share_storage(args)):
            # Of arguments that share storage the kernel knows; other calls need not pay for that.
            forms[shape] = match, found

    def _position(self, types: Types) -> int | None:
        """Of the tensor whose shape tells forms apart; None where only keys do."""
        return first_tensor(types) if self._keys.are_forms else None

    def _compile(self, types: Types, otherwise: Callable[..., Any]) -> Callable[..., Any]:
        names, key = self._keys.expression(types)
        listed = ", ".join(names)
        tests = " and ".join(f"type({name}) is t{i}" for i, name in enumerate(names))
        scope = self._keys.scope(types) | {f"t{i}": kind for i, kind in enumerate(types)}
        scope |= {"find_form": self._forms[types].get, "find_key": self._table.get}
        scope |= {"otherwise": otherwise, "check": self._keys.check}
        lines = [
            f"def find({listed}):",
            f"    if not ({tests or True}): return otherwise({listed})",
            "    try:",
            *self._form_lines(types, names),
            f"        return find_key({key})",
            "    except RuntimeError:",
            f"        check({listed})",
            "        raise",
        ]
        exec("\n".join(lines), scope)
        return scope["find"]

    def _form_lines(self, types: Types, names: Sequence[str]) -> Iterator[str]:
        position = self._position(types)
        if position is not None:
            yield f"        known = find_form({names[position]}.shape)"
            yield f"        if known is not None and known[0]({', '.join(names)}): return known[1]"
