"""Arguments and results taken apart: what an operator of torch can take, and how it belongs together.

An operator takes tensors, integers and floats in lists, and one text. The text says where each of
them stands among the arguments, and what the other arguments are. Dynamo runs the functions that
make it, so they are plain loops over plain lists.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Any, cast

import torch

_TENSOR, _INTEGER, _FLOAT = 0, 1, 2
_REFUSED = "refused"


class Parts:
    """What stands at the leaves of arguments, each kind in order."""

    def __init__(
        self,
        tensors: Sequence[Any] = (),
        integers: Sequence[Any] = (),
        floats: Sequence[Any] = (),
    ) -> None:
        self.tensors = list(tensors)
        self.integers = list(integers)
        self.floats = list(floats)


def take_apart(value: Any, parts: Parts) -> str:
    """Add the leaves of a value to ``parts``; the text is a Python literal that ``put_together`` reads."""
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
    return f"('{_REFUSED}', '{type(value).__name__}')"


def _listed(values: Any, parts: Parts) -> str:
    texts = [take_apart(value, parts) for value in values]
    return "[" + ", ".join(texts) + "]"


class Structure:
    """How leaves belong together, read from its text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._form = ast.literal_eval(text)

    @property
    def refused(self) -> str | None:
        """The type of an argument that no operator can take."""
        return next(_refused(self._form), None)

    def put_together(self, parts: Parts) -> tuple[Any, ...]:
        """The arguments again."""
        leaves = {
            _TENSOR: iter(parts.tensors),
            _INTEGER: iter(parts.integers),
            _FLOAT: iter(parts.floats),
        }
        return cast("tuple[Any, ...]", _built(self._form, leaves))

    def leaf_names(self, parameters: Sequence[str]) -> list[tuple[int, str]]:
        """The kind and a name of each leaf, in order."""
        found: list[tuple[int, str]] = []
        for name, form in zip(parameters, self._form[1]):
            leaves = list(_leaves(form))
            names = [name] if len(leaves) == 1 else [f"{name}_{i}" for i in range(len(leaves))]
            found += zip(leaves, names)
        return found


def _refused(form: Any) -> Iterator[str]:
    if isinstance(form, tuple) and form[0] == _REFUSED:
        yield form[1]
    elif isinstance(form, tuple) and form[0] in ("list", "tuple", "dict"):
        for item in form[-1]:
            yield from _refused(item)


def _leaves(form: Any) -> Iterator[int]:
    if isinstance(form, int):
        yield form
    elif form[0] in ("list", "tuple", "dict"):
        for item in form[-1]:
            yield from _leaves(item)


def _built(form: Any, leaves: dict[int, Iterator[Any]]) -> Any:
    if isinstance(form, int):
        return next(leaves[form])
    kind = form[0]
    if kind == "constant":
        return form[1]
    if kind == "dtype":
        return getattr(torch, form[1].removeprefix("torch."))
    if kind == "device":
        return torch.device(form[1])
    items = [_built(item, leaves) for item in form[-1]]
    if kind == "dict":
        return dict(zip(form[1], items))
    return items if kind == "list" else tuple(items)


SCHEMA_TYPES = {_TENSOR: "Tensor", _INTEGER: "SymInt", _FLOAT: "float"}
"""How a schema spells the type of a leaf."""


def by_kind(structure: Sequence[tuple[int, str]], values: Sequence[Any]) -> Parts:
    """Leaves in the order of a schema, sorted by kind."""
    parts = Parts()
    lists = {_TENSOR: parts.tensors, _INTEGER: parts.integers, _FLOAT: parts.floats}
    for (kind, _), value in zip(structure, values):
        lists[kind].append(value)
    return parts


def in_order(structure: Sequence[tuple[int, str]], parts: Parts) -> list[Any]:
    """Leaves sorted by kind, in the order of a schema."""
    lists = {
        _TENSOR: iter(parts.tensors),
        _INTEGER: iter(parts.integers),
        _FLOAT: iter(parts.floats),
    }
    return [next(lists[kind]) for kind, _ in structure]
