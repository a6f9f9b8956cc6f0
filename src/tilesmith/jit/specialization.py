"""Arguments to key: what is baked into a compiled kernel.

And so must be equal for it to be used again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch

from tilesmith.diagnostics import errors
from tilesmith.diagnostics.wording import kind_of
from tilesmith.frontend.host_functions import constexpr

INT32_LIMIT = 2**31 - 1


def static_tensor_key(tensor: torch.Tensor) -> Hashable:
    """Sizes and strides are constants."""
    return (tensor.dtype, tensor.device.type, tensor.shape, tensor.stride())


def dynamic_tensor_key(tensor: torch.Tensor) -> Hashable:
    """Sizes are runtime values, except 0 and 1; index width is part of the kernel."""
    sizes = tuple(size if size in (0, 1) else 2 for size in tensor.shape)
    strides = tuple(stride if stride in (0, 1) else 2 for stride in tensor.stride())
    span = sum((n - 1) * abs(s) for n, s in zip(tensor.shape, tensor.stride()) if n)
    return (tensor.dtype, tensor.device.type, sizes, strides, span > INT32_LIMIT)


class KeyMaker:
    """Computes the key of one kernel's arguments."""

    def __init__(self, *, static_shapes: bool) -> None:
        self._tensor_key = static_tensor_key if static_shapes else dynamic_tensor_key

    def key(self, argument: Any, name: str) -> Hashable:
        """The contribution of one argument."""
        if isinstance(argument, torch.Tensor):
            return self._tensor_key(argument)
        kind = type(argument)
        if kind in (int, float):
            # A 64-bit value needs another parameter type; otherwise only the kind matters.
            return (kind, kind is int and not -INT32_LIMIT <= argument <= INT32_LIMIT - (1 << 20))
        if argument is None or kind in (bool, str, torch.dtype, torch.device):
            return argument
        return self._structured_key(argument, name)

    def _structured_key(self, argument: Any, name: str) -> Hashable:
        if isinstance(argument, constexpr):
            return ("constexpr", argument.value)
        if isinstance(argument, (list, tuple)):
            return (type(argument), *(self.key(a, f"{name}[{i}]") for i, a in enumerate(argument)))
        if isinstance(argument, dict):
            items = sorted(argument.items(), key=lambda item: str(item[0]))
            return (dict, *((k, self.key(v, f"{name}[{k!r}]")) for k, v in items))
        if isinstance(argument, FunctionType):
            return self._function_key(argument, name)
        if isinstance(argument, BuiltinFunctionType) or (
            callable(argument) and _is_torch(argument)
        ):
            return ("builtin", id(argument))
        if dataclasses.is_dataclass(argument) and not isinstance(argument, type):
            fields = dataclasses.fields(argument)
            return (
                type(argument),
                *(self.key(getattr(argument, f.name), f"{name}.{f.name}") for f in fields),
            )
        if isinstance(argument, (int, float)):
            return ("number", argument)
        raise errors.UnsupportedArgumentType(argument=name, kind=kind_of(argument))

    def _function_key(self, function: FunctionType, name: str) -> Hashable:
        """Code plus contents of closure cells; numbers in cells are constants of the kernel."""
        cells: list[Hashable] = []
        for cell in function.__closure__ or ():
            try:
                content = cell.cell_contents
            except ValueError:
                continue
            if isinstance(content, (int, float)):
                cells.append(content)
            elif content is not function:
                cells.append(self.key(content, f"{name} (captured)"))
        return (function.__code__, function.__defaults__, *cells)


def _is_torch(argument: Any) -> bool:
    return str(getattr(argument, "__module__", "")).startswith("torch")


def find_device(arguments: tuple[Any, ...]) -> torch.device | None:
    """The first device among the arguments, containers included."""
    for argument in arguments:
        if isinstance(argument, torch.Tensor):
            return argument.device
        if isinstance(argument, torch.device):
            return argument
        nested = list(argument.values()) if isinstance(argument, dict) else argument
        if isinstance(nested, (list, tuple)):
            found = find_device(tuple(nested))
            if found is not None:
                return found
    return None


def check_devices(arguments: tuple[Any, ...], names: tuple[str, ...], device: torch.device) -> None:
    """All tensors must be where the kernel runs."""
    for name, argument in zip(names, arguments):
        if isinstance(argument, torch.Tensor) and argument.device != device:
            raise errors.TensorsOnDifferentDevices(
                tensor=name, device=str(argument.device), kernel_device=str(device)
            )
        if isinstance(argument, (list, tuple)):
            nested = tuple(f"{name}[{i}]" for i in range(len(argument)))
            check_devices(tuple(argument), nested, device)


def alias_pattern(arguments: tuple[Any, ...]) -> tuple[int, ...]:
    """Which tensors share storage: for each, the position of the first with the same memory."""
    first: dict[int, int] = {}
    pattern: list[int] = []
    for argument in arguments:
        tensors = argument if isinstance(argument, (list, tuple)) else (argument,)
        for tensor in tensors:
            if isinstance(tensor, torch.Tensor):
                address = tensor.untyped_storage().data_ptr()
                pattern.append(first.setdefault(address, len(pattern)))
    return tuple(pattern)
