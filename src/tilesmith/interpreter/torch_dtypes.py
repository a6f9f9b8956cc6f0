"""Element types of the IR and of torch, both ways."""

from __future__ import annotations

import torch

from tilesmith.dtypes import ALL_DTYPES, DTYPES_BY_NAME, DType

# Keyed by name: a name hashes faster than a DType, and every op looks here.
_TO_TORCH: dict[str, torch.dtype] = {d.name: getattr(torch, d.long_name) for d in ALL_DTYPES}
_FROM_TORCH = {torch_dtype: DTYPES_BY_NAME[name] for name, torch_dtype in _TO_TORCH.items()}

SIGNED_OF_WIDE_UNSIGNED = {
    torch.uint16: torch.int16,
    torch.uint32: torch.int32,
    torch.uint64: torch.int64,
}
"""The unsigned types that torch mostly cannot compute with, and the signed ones as wide."""
FLOAT8 = frozenset({torch.float8_e4m3fn, torch.float8_e5m2})

ELEMENT_TYPES = tuple(_FROM_TORCH)
"""The torch dtypes that tensors of kernels may have."""


def has_element_type(dtype: torch.dtype) -> bool:
    """Whether tensors of a torch dtype have a form in the IR."""
    return dtype in _FROM_TORCH


def to_torch(dtype: DType) -> torch.dtype:
    """The torch dtype of an element type."""
    return _TO_TORCH[dtype.name]


def as_movable(tensor: torch.Tensor) -> torch.Tensor:
    """The same bits in a type that torch's indexing functions take."""
    dtype = torch.int8 if tensor.dtype in FLOAT8 else SIGNED_OF_WIDE_UNSIGNED.get(tensor.dtype)
    return tensor if dtype is None else tensor.view(dtype)


def from_torch(dtype: torch.dtype) -> DType:
    """The element type of a torch dtype."""
    if dtype not in _FROM_TORCH:
        known = ", ".join(str(known).removeprefix("torch.") for known in _FROM_TORCH)
        if not isinstance(dtype, torch.dtype):
            raise TypeError(f"{dtype!r} is no torch.dtype; expected one such as torch.float32")
        raise TypeError(f"{dtype} is not supported; supported: {known}")
    return _FROM_TORCH[dtype]
