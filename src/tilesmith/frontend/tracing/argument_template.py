"""Arguments kept for tracing again, without keeping the user's tensors alive."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from types import CellType, FunctionType
from typing import Any

import torch

from tilesmith.frontend.containers import cell_contents, items_of, rebuilt

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

    def __init__(self, arguments: tuple[Any, ...]) -> None:
        self._tensors: list[_TensorTemplate] = []
        self._items = [self._remember(argument) for argument in arguments]

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
        items = items_of(argument)
        if items is None:
            return lambda _: argument
        empty = rebuilt(argument, [None] * len(items))
        recalls = [self._remember(item.value) for item in items]
        return lambda storages: rebuilt(empty, [recall(storages) for recall in recalls])

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
