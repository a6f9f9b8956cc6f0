"""A module that cannot be imported."""

from __future__ import annotations

import torch

raise RuntimeError("built for another version")


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2
