"""Containers that arguments and captured values may be: their items, and copies with others.

Lists, tuples, named tuples, dicts and dataclass instances; anything else is a leaf. Numbers of
numpy count as Python's. An ``ArgumentTemplate`` keeps arguments for tracing again, without keeping
the user's tensors alive.
"""

from __future__ import annotations

import dataclasses
import enum
import sys
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, is_dataclass
from functools import partial
from operator import attrgetter, itemgetter
from types import CellType, FunctionType
from typing import Any, cast

import torch

import tilesmith.exc as errors


@dataclass(frozen=True)
class Item:
    """One item of a container."""

    value: Any
    suffix: str
    """How Python code spells the access: ``[0]``, ``['a']`` or ``.name``."""
    get: Callable[[Any], Any]
    """Finds the item in another container of the same form."""


class Arguments(tuple[Any, ...]):
    """One value for each parameter of a kernel: not to be matched with its signature again."""

    __slots__ = ()


_VALUES = (torch.Tensor, bool, int, float, str, enum.Enum, FunctionType, type(None))


def is_host_kind(kind: type) -> bool:
    """Whether a method's ``self`` of this type is any object, not a value of a known kind.

    No key covers it. Host code reads it at every call; what device code reads of it is guarded.
    """
    return not issubclass(kind, _VALUES)


def items_of(value: Any) -> list[Item] | None:
    """The items of a container, in a fixed order; None for a leaf."""
    if isinstance(value, enum.Enum):
        return None  # whatever else its class derives from, a member is itself
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return [_attribute(value, name) for name in value._fields]  # type: ignore[attr-defined]
    if isinstance(value, (list, tuple)):
        return [Item(item, f"[{i}]", itemgetter(i)) for i, item in enumerate(value)]
    if isinstance(value, dict):
        return [Item(item, f"[{key!r}]", itemgetter(key)) for key, item in value.items()]
    if is_dataclass(value) and not isinstance(value, type):
        return [_attribute(value, field.name) for field in dataclasses.fields(value)]
    return None


def _attribute(value: Any, name: str) -> Item:
    return Item(getattr(value, name), f".{name}", attrgetter(name))


def rebuilt(value: Any, items: Sequence[Any]) -> Any:
    """A container like ``value`` with these items, in the order of ``items_of``."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*items)
    if isinstance(value, Arguments):
        return Arguments(items)
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


def plain_numbers(args: tuple[Any, ...], num_kept: int = 0) -> tuple[Any, ...]:
    """The arguments with Python's numbers in place of numpy's; the same object if it has none.

    The first ``num_kept`` stay what they are: the ``self`` of a method.
    """
    kinds = _numpy_kinds()
    held = (*kinds, list, tuple, dict)
    if not any(isinstance(argument, held) or is_dataclass(argument) for argument in args):
        return args
    plain = [_plain(argument, kinds) for argument in args[num_kept:]]
    is_same = all(new is old for new, old in zip(plain, args[num_kept:]))
    return args if is_same else Arguments((*args[:num_kept], *plain))


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


Storages = dict[Hashable, torch.UntypedStorage]
Recall = Callable[[Storages], Any]


class _TensorTemplate:
    """A tensor that may be gone: its form, and which others it shared memory with."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.reference = weakref.ref(tensor)
        storage = tensor.untyped_storage()
        # Tensors without memory (of size 0, on the meta device) share it with none.
        self.storage: Hashable = storage.data_ptr() or self
        self._bytes = storage.nbytes()
        self._form = (tensor.storage_offset(), tensor.size(), tensor.stride())
        self._dtype, self._device = tensor.dtype, tensor.device

    def recall(self, storages: Storages) -> torch.Tensor:
        """The tensor if it still exists, else one like it."""
        alive = self.reference()
        if alive is not None:
            return alive
        if self.storage not in storages:
            storages[self.storage] = torch.UntypedStorage(self._bytes, device=self._device)
        empty = torch.empty(0, dtype=self._dtype, device=self._device)
        return empty.set_(storages[self.storage], *self._form)  # type: ignore[call-overload]


class ArgumentTemplate:
    """Remembers arguments; ``materialise`` gives them back, or others of the same form."""

    def __init__(
        self, arguments: tuple[Any, ...], host_objects: frozenset[int] = frozenset()
    ) -> None:
        self._tensors: list[_TensorTemplate] = []
        self._items = [
            _remember_object(argument) if position in host_objects else self._remember(argument)
            for position, argument in enumerate(arguments)
        ]

    def materialise(self) -> tuple[Any, ...]:
        """The same arguments where they still exist, else fresh ones that share memory alike."""
        storages: Storages = {}
        for tensor in self._tensors:
            alive = tensor.reference()
            if alive is not None:
                storages[tensor.storage] = alive.untyped_storage()
        return tuple(item(storages) for item in self._items)

    def _remember(self, argument: Any) -> Recall:
        if isinstance(argument, torch.Tensor):
            self._tensors.append(_TensorTemplate(argument))
            return self._tensors[-1].recall
        if isinstance(argument, FunctionType) and argument.__closure__:
            return self._remember_function(argument)
        if isinstance(argument, partial):
            return self._remember_partial(cast("partial[Any]", argument))
        items = items_of(argument)
        if items is None:
            return lambda _: argument
        empty = rebuilt(argument, [None] * len(items))
        recalls = [self._remember(item.value) for item in items]
        return lambda storages: rebuilt(empty, [recall(storages) for recall in recalls])

    def _remember_partial(self, given: partial[Any]) -> Recall:
        """The function with arguments of its own."""
        function = self._remember(given.func)
        args, keywords = self._remember(given.args), self._remember(given.keywords)
        return lambda storages: partial(function(storages), *args(storages), **keywords(storages))

    def _remember_function(self, function: FunctionType) -> Recall:
        """The function over closure cells of its own."""
        contents = [cell_contents(cell) for cell in function.__closure__ or ()]
        if any(isinstance(content, FunctionType) for content in contents):
            return lambda _: function
        cells = [self._remember(content) for content in contents]
        code, module, defaults = function.__code__, function.__globals__, function.__defaults__
        keywords = function.__kwdefaults__

        def recall(storages: Storages) -> FunctionType:
            closure = tuple(CellType(cell(storages)) for cell in cells)
            copy = FunctionType(code, module, code.co_name, defaults, closure)
            copy.__kwdefaults__ = keywords
            return copy

        return recall


def _remember_object(value: Any) -> Recall:
    """An object that is not kept alive, if it can be helped."""
    try:
        reference = weakref.ref(value)
    except TypeError:
        return lambda _: value
    kind = type(value).__name__

    def recall(_: Storages) -> Any:
        alive = reference()
        if alive is None:
            raise errors.InvalidArgumentValue(
                function=kind,
                problem="the object that a kernel was bound with is gone",
                expected="one that is alive: bind the kernel again",
            )
        return alive

    return recall
