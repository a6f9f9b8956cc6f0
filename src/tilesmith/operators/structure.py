"""Arguments taken apart: what an operator of torch can take, and how it belongs together.

An operator takes tensors, integers and floats in lists, and one text. The text says where each of
them stands among the arguments, and what the other arguments are. Dynamo runs the functions that
make it, so they are plain loops over plain lists.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from types import FunctionType
from typing import Any

import torch

_TENSOR, _INTEGER, _FLOAT = 0, 1, 2
_REFUSED = "refused"
_CONTAINERS = ("list", "tuple", "dict")


class NoOperatorError(Exception):
    """Why calls of this kind cannot be one node of a graph."""


class Parts:
    """What stands at the leaves of arguments, each kind in order."""

    def __init__(
        self, tensors: Sequence[Any] = (), integers: Sequence[Any] = (), floats: Sequence[Any] = ()
    ) -> None:
        self.tensors, self.integers, self.floats = list(tensors), list(integers), list(floats)

    @property
    def lists(self) -> tuple[list[Any], ...]:
        """By the numbers of kinds."""
        return self.tensors, self.integers, self.floats


def take_call_apart(
    values: Sequence[Any], names: Sequence[str], defaults: Mapping[str, Any], parts: Parts
) -> str:
    """The same for the arguments of a call; defaults that are functions are known by their name."""
    texts: list[str] = []
    for value, name in zip(values, names):
        is_default = isinstance(value, FunctionType) and value is defaults.get(name)
        texts.append(f"('default', '{name}')" if is_default else take_apart(value, parts))
    return "('tuple', [" + ", ".join(texts) + "])"


def take_apart(value: Any, parts: Parts) -> str:
    """Add the leaves of a value to ``parts``; the text, a Python literal, says where they stood."""
    if isinstance(value, torch.Tensor):
        parts.tensors.append(value)
        return str(_TENSOR)
    if value is None or isinstance(value, (bool, str)):
        return f"('constant', {value!r})"
    if isinstance(value, (int, torch.SymInt)):
        parts.integers.append(value)
        return str(_INTEGER)
    if isinstance(value, (float, torch.SymFloat)):
        parts.floats.append(value)
        return str(_FLOAT)
    if isinstance(value, torch.dtype):
        return f"('dtype', '{value}')"
    if isinstance(value, torch.device):
        return f"('device', '{value}')"
    return _take_container_apart(value, parts)


def _take_container_apart(value: Any, parts: Parts) -> str:
    if type(value) in (list, tuple, torch.Size):
        kind = "list" if isinstance(value, list) else "tuple"
        return f"('{kind}', {_listed(value, parts)})"
    if type(value) is dict:
        keys = list(value.keys())
        return f"('dict', {keys!r}, {_listed(list(value.values()), parts)})"
    if isinstance(value, FunctionType) and value.__name__ != "<lambda>":
        line = value.__code__.co_firstlineno
        return f"('function', '{value.__module__}', '{value.__name__}', {line})"
    return f"('{_REFUSED}', '{type(value).__name__}')"


def _listed(values: Any, parts: Parts) -> str:
    texts = [take_apart(value, parts) for value in values]
    return "[" + ", ".join(texts) + "]"


class Structure:
    """How leaves belong together, read from its text."""

    def __init__(self, text: str, defaults: Mapping[str, Any]) -> None:
        self.text = text
        self._form = ast.literal_eval(text)
        self._defaults = defaults
        forms = self._form[1]
        self._positions = [i for i, form in enumerate(forms) if isinstance(form, int)]
        """Of parameters that are leaves."""
        self._kinds = list(_leaves(self._form))
        self._is_flat = len(self._kinds) == len(self._positions)
        """Whether all leaves are parameters."""

    @property
    def refused(self) -> str | None:
        """The type of an argument that no operator can take."""
        return next(_refused(self._form), None)

    def arguments(self, leaves: Iterable[Any]) -> tuple[Any, ...]:
        """The arguments again."""
        if len(self._positions) == len(self._form[1]):
            return tuple(leaves)
        rest = iter(leaves)
        return tuple([self._built(form, rest) for form in self._form[1]])

    def put_together(self, parts: Parts) -> tuple[Any, ...]:
        """The same of leaves sorted by kind."""
        return self.arguments(self.in_order(parts))

    def _built(self, form: Any, leaves: Iterator[Any]) -> Any:
        if isinstance(form, int):
            return next(leaves)
        kind = form[0]
        if kind not in _CONTAINERS:
            return self._defaults[form[1]] if kind == "default" else _FIXED[kind](*form[1:])
        items = [self._built(item, leaves) for item in form[-1]]
        if kind == "dict":
            return dict(zip(form[1], items))
        return items if kind == "list" else tuple(items)

    def by_kind(self, leaves: Sequence[Any]) -> Parts:
        """Leaves sorted by kind."""
        parts = Parts()
        for kind, leaf in zip(self._kinds, leaves):
            parts.lists[kind].append(leaf)
        return parts

    def in_order(self, parts: Parts) -> list[Any]:
        """Leaves as they stand among the arguments."""
        lists = [*map(iter, parts.lists)]
        return [next(lists[kind]) for kind in self._kinds]

    def leaf_names(self, parameters: Sequence[str]) -> list[tuple[int, str]]:
        """The kind and a name of each leaf, in order."""
        found: list[tuple[int, str]] = []
        for name, form in zip(parameters, self._form[1]):
            leaves = list(_leaves(form))
            names = [name] if len(leaves) == 1 else [f"{name}_{i}" for i in range(len(leaves))]
            found += zip(leaves, names)
        return found

    def leaf_values(self, values: Sequence[Any]) -> list[Any]:
        """One value for each leaf, from one for each parameter; None is for all of its leaves."""
        if self._is_flat:
            return [values[position] for position in self._positions]
        found: list[Any] = []
        for value, form in zip(values, self._form[1]):
            _spread(value, form, found)
        return found


def _spread(value: Any, form: Any, found: list[Any]) -> None:
    if isinstance(form, int):
        found.append(value)
    elif form[0] in _CONTAINERS:
        held = value.values() if isinstance(value, dict) else value
        items = [None] * len(form[-1]) if held is None else list(held)
        for item, part in zip(items, form[-1]):
            _spread(item, part, found)


def _refused(form: Any) -> Iterator[str]:
    if isinstance(form, tuple) and form[0] == _REFUSED:
        yield form[1]
    elif isinstance(form, tuple) and form[0] in _CONTAINERS:
        for item in form[-1]:
            yield from _refused(item)


def _leaves(form: Any) -> Iterator[int]:
    if isinstance(form, int):
        yield form
    elif form[0] in _CONTAINERS:
        for item in form[-1]:
            yield from _leaves(item)


def _function(module: str, name: str, line: int) -> Any:
    found = getattr(import_module(module), name, None)
    # By its line, it is not another function of that name, made inside of one.
    if not isinstance(found, FunctionType) or found.__code__.co_firstlineno != line:
        raise NoOperatorError(f"`{name}`, an argument, is a function that module {module} lacks")
    return found


_FIXED: dict[str, Callable[..., Any]] = {
    "constant": lambda value: value,
    "dtype": lambda name: getattr(torch, name.removeprefix("torch.")),
    "device": torch.device,
    "function": _function,
}
"""How a value is found that the text itself says."""


SCHEMA_TYPES = {_TENSOR: "Tensor", _INTEGER: "SymInt", _FLOAT: "float"}
"""How a schema spells the type of a leaf."""
