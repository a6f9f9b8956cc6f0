"""Forward mode of autograd: kernels have no derivative there, and say so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd import forward_ad

from tilesmith.diagnostics.operators import operator_errors as errors

FORWARD_MODE = forward_ad.__dict__, "_current_level", -1
"""Where torch notes how many levels of dual numbers there are, and what stands there for none."""


def has_levels() -> bool:
    """Whether there may be dual numbers."""
    names, level, none = FORWARD_MODE
    return names.get(level, none) != none


def check_tangents(function: str, values: Sequence[Any]) -> None:
    """Refuse dual numbers of forward mode: kernels would lose their tangents."""
    if not has_levels():
        return
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    if any(map(_has_tangent, tensors)):
        raise errors.NoForwardMode(function=function)


def _has_tangent(tensor: torch.Tensor) -> bool:
    try:
        return forward_ad.unpack_dual(tensor).tangent is not None
    except RuntimeError:  # inside of a dispatch mode torch does not tell
        return True
