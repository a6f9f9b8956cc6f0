"""Tensors that are written: what autograd is told of, and what must not change."""

from __future__ import annotations

from typing import Any

import torch

_UNKNOWN: Any = object()


def whole_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """The tensor itself, or the one that it is another shape of; None of a part of one."""
    # No public name tells it; without this one everything that is written may be a part.
    base = getattr(tensor, "_base", _UNKNOWN)
    if tensor.requires_grad or base is None:
        return tensor
    is_all = (
        base is not _UNKNOWN
        and not base.requires_grad
        and base.is_contiguous()
        and tensor.is_contiguous()
        and base.numel() == tensor.numel()
        and base.dtype == tensor.dtype
    )
    return base if is_all else None


def is_of_leaf(tensor: torch.Tensor) -> bool:
    """Whether it is a leaf of autograd or a view of one, which must not change."""
    return tensor.is_leaf or getattr(getattr(tensor, "_base", None), "is_leaf", False)
