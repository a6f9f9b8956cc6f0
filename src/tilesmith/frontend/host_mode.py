"""Under dynamic shapes, sizes that host code reads are marked as runtime values while tracing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from tilesmith.frontend.host_numbers import RuntimeInt, note_use
from tilesmith.frontend.sessions import find_tracer

_SHAPED_BY_NUMBERS = frozenset(
    (
        *("empty", "zeros", "ones", "full", "rand", "randn", "view", "reshape", "expand"),
        *("new_empty", "new_zeros", "new_ones", "new_full"),
    )
)


class BlockSizeMode(TorchFunctionMode):
    """Active while host code runs for tracing: torch reads sizes without a Python method."""

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Report block sizes among the arguments."""
        note_use((*args, *(kwargs or {}).values()))
        return func(*args, **(kwargs or {}))


class RuntimeSizeMode(TorchFunctionMode):
    """Active while host code of a dynamic-shape kernel runs for tracing.

    ``origins`` tells, for argument tensors by identity, how to get them from the kernel's
    arguments. ``literal_sizes`` receives the sizes that host code gives as plain numbers: those
    are constants, as ``torch.empty([n, 3])`` has exactly three columns.
    """

    def __init__(
        self, origins: dict[int, Callable[..., torch.Tensor]], literal_sizes: set[int]
    ) -> None:
        super().__init__()
        self._origins = origins
        self._literal_sizes = literal_sizes

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Mark what size, stride and shape give; everything else runs as it is."""
        result = func(*args, **(kwargs or {}))
        if find_tracer() is not None:
            return result
        name = getattr(func, "__name__", "")
        if name in _SHAPED_BY_NUMBERS:
            # The number of torch.full is its value.
            sizes = [a for a in args if isinstance(a, (list, tuple))] if "full" in name else args
            self._note_literals((*sizes, (kwargs or {}).get("size", ())))
        if not args or not isinstance(args[0], torch.Tensor):
            return result
        if name in ("size", "stride"):
            return self._mark_all(result, args, name)
        if isinstance(result, torch.Size):
            return self._mark_all(result, (args[0],), "size")
        if name == "numel":
            return RuntimeInt.make(result)
        return result

    def _note_literals(self, sizes: Any) -> None:
        for size in sizes:
            if isinstance(size, (list, tuple)):
                self._note_literals(size)
            elif type(size) is int and size > 1:
                self._literal_sizes.add(size)

    def _mark_all(self, result: Any, args: tuple[Any, ...], kind: str) -> Any:
        tensor = args[0]
        if isinstance(result, int):
            return self._mark(result, tensor, kind, args[1])
        return tuple(self._mark(value, tensor, kind, axis) for axis, value in enumerate(result))

    def _mark(self, value: int, tensor: torch.Tensor, kind: str, axis: int) -> int:
        if kind == "size" and value in (0, 1):
            return value
        if kind == "stride" and value in (0, 1):
            return value
        origin = self._origins.get(id(tensor))
        if origin is None:
            return RuntimeInt.make(value)
        return RuntimeInt.make(value, lambda *args: getattr(origin(*args), kind)(axis))
