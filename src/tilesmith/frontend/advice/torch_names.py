"""What to write instead of functions and methods of torch that device code does not have."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

import torch

ON_THE_HOST = "call it on the host, outside the device loop; docs/ops.md lists what works inside"
_NO_ARRAYS = "leave it out, and compute with torch functions: device code has no arrays of NumPy"
_ONE_DEVICE = "leave it out: device values are where the kernel runs"
_OUTSIDE = "call it on what the kernel returns, outside of the kernel"
FIXES = {
    "numpy": _NO_ARRAYS,
    "tolist": _NO_ARRAYS,
    "from_numpy": "make the tensor on the host, and pass it as an argument",
    "cpu": _ONE_DEVICE,
    "cuda": _ONE_DEVICE,
    "pin_memory": _ONE_DEVICE,
    "backward": _OUTSIDE,
    "requires_grad_": _OUTSIDE,
}
"""By the name of the function or method."""

TRITON_NAMES = {
    "program_id": "tile.id",
    "num_programs": "tile.count",
    "cdiv": "tilesmith.cdiv",
    "trans": "v.T",
    "expand_dims": "v[:, None]",
}
"""Functions of Triton's language that have another name here, or none in torch."""


def fix_of(name: str) -> str:
    """What to do about a name that torch has and device code has not."""
    return FIXES.get(name, ON_THE_HOST)


def suggested_names(name: str, known: Sequence[str]) -> list[str]:
    """What was perhaps meant by a name that the language does not have.

    Example:
        >>> suggested_names("zero", ["zeros", "full"]), suggested_names("where", ["zeros"])
        (['hl.zeros'], ['torch.where'])
    """
    if name in TRITON_NAMES or hasattr(torch, name):
        return [TRITON_NAMES.get(name, f"torch.{name}")]
    return [f"hl.{near}" for near in difflib.get_close_matches(name, known, n=3)]
