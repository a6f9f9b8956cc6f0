"""Tiles of packed numbers: kernels get the bytes, device code may decode, view or store them."""

from __future__ import annotations

from typing import Any

import torch

import tilesmith.exc as errors
from tilesmith.frontend.tracing.tracer import Tracer
from tilesmith.frontend.tracing.values import TileValue, TorchOperand, dispatch

PACKED = torch.float4_e2m1fn_x2


class PackedTile(TorchOperand):
    """The bytes of a tile. There is no arithmetic: bytes would be taken for numbers."""

    user_name = "a tile of packed FP4 numbers"
    dtype = PACKED

    def __init__(self, held: TileValue) -> None:
        self.bytes = held
        self.shape, self.ndim, self.size = held.shape, held.ndim, held.size

    def view(self, dtype: torch.dtype) -> TileValue:
        """The bytes, in a type that has arithmetic."""
        return dispatch("view", (self.bytes, dtype), {})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._refuse

    @classmethod
    def _refuse(cls, *_: Any, **__: Any) -> Any:
        decoded = "low, high = hl.float4_e2m1fn_x2_to_float32(v)"
        raise errors.TypeInferenceError(
            problem=f"{cls.user_name} cannot be computed with",
            fix=f"decode them: {decoded}; their bytes: v.view(torch.uint8)",
        )

    __torch_function__ = __getitem__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = _refuse
    __rtruediv__ = __matmul__ = __rmatmul__ = __neg__ = __and__ = __or__ = __rshift__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = _refuse


def held_bytes(tracer: Tracer, tensor: torch.Tensor, source: str) -> tuple[torch.Tensor, str]:
    """What kernels get of a tensor, and its launch expression: the bytes of a packed one."""
    if tensor.dtype is not PACKED:
        return tensor, source
    with tracer.eager():
        return tensor.view(torch.uint8), f"{source}.view(torch.uint8)"


def packed_if(dtype: torch.dtype, loaded: TileValue) -> Any:
    """What device code sees of a tile loaded from a tensor of some element type."""
    return PackedTile(loaded) if dtype is PACKED else loaded


def bytes_of(value: Any) -> Any:
    """The bytes of a packed tile; anything else as it is."""
    return value.bytes if isinstance(value, PackedTile) else value


def is_stored_as_is(value: Any, dtype: torch.dtype) -> bool:
    """Whether a value can go into a tensor: packed ones take packed tiles and bytes, only those."""
    is_packed = isinstance(value, PackedTile)
    is_bytes = getattr(value, "dtype", None) is torch.uint8
    return is_packed or is_bytes if dtype is PACKED else not is_packed
