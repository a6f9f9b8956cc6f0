"""Copies of tensors for a trial run, which share memory where the originals do."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from tilesmith.analysis.effects import alias_group
from tilesmith.interpreter.run import Argument
from tilesmith.ir.function import Function
from tilesmith.ir.types import TensorType
from tilesmith.passes.widen_floats import written_groups_of

_WIDEST = 8


def bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """All bytes of a tensor's storage, as a flat tensor over the same memory."""
    flat = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return flat.set_(tensor.untyped_storage())  # type: ignore[arg-type]


class ScratchTensors:
    """Copies storages as they are met, once each."""

    def __init__(self) -> None:
        self._bytes: dict[int, torch.Tensor] = {}
        self._wide: dict[int, torch.Tensor] = {}

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """The same elements in memory of their own."""
        flat = _once(self._bytes, tensor, lambda: _padded_copy(bytes_of(tensor)))
        return _like(flat.view(tensor.dtype), tensor)

    def widen(self, tensor: torch.Tensor) -> torch.Tensor:
        """The same elements as fp64; all tensors of one storage must have one type."""
        flat = _once(self._wide, tensor, lambda: _elements_of(tensor).to(torch.float64, copy=True))
        return _like(flat, tensor)


def copy_written(
    function: Function, arguments: Mapping[str, Argument], *, is_wide: bool
) -> dict[str, torch.Tensor]:
    """The tensors in memory that a function writes, as copies; floats as fp64 if wide."""
    groups = written_groups_of(function)
    scratch = ScratchTensors()
    copies: dict[str, torch.Tensor] = {}
    for value in (parameter.value for parameter in function.parameters):
        if not isinstance(value.type, TensorType) or alias_group(value) not in groups:
            continue
        tensor = arguments[value.name]
        assert isinstance(tensor, torch.Tensor)
        must_widen = is_wide and tensor.is_floating_point()
        copies[value.name] = scratch.widen(tensor) if must_widen else scratch.copy(tensor)
    return copies


def _once(
    known: dict[int, torch.Tensor], tensor: torch.Tensor, make: Callable[[], torch.Tensor]
) -> torch.Tensor:
    key = tensor.untyped_storage().data_ptr()
    # All tensors without memory have one address.
    if not key or key not in known:
        known[key] = make()
    return known[key]


def _padded_copy(content: torch.Tensor) -> torch.Tensor:
    """A copy that any type can be seen in: its length is a multiple of the widest."""
    length = -(-content.numel() // _WIDEST) * _WIDEST
    copy = torch.zeros(length, dtype=torch.uint8, device=content.device)
    copy[: content.numel()] = content
    return copy


def _elements_of(tensor: torch.Tensor) -> torch.Tensor:
    content = bytes_of(tensor)
    return content[: content.numel() // tensor.itemsize * tensor.itemsize].view(tensor.dtype)


def _like(flat: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    return flat.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
