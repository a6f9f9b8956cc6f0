"""Tensors that every launch makes for itself: counters of arrivals, scratch between phases."""

from __future__ import annotations

import torch

from tilesmith.artifacts import LaunchParameter

_DEVICE = "device="


def make_launch_tensor(parameter: LaunchParameter, device: torch.device | str) -> torch.Tensor:
    """What the launch expression of such a parameter makes, on a device of the caller's choice."""
    expression, _, _ = parameter.source.rpartition(_DEVICE)
    return eval(f"{expression}{_DEVICE}device)", {"torch": torch, "device": device})
