"""Random tensors: values depend on shape, dtype and seed alone, not on device or global state."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def random_tensor(
    shape: Sequence[int],
    dtype: torch.dtype,
    *,
    seed: int = 0,
    device: torch.device | str = "cpu",
    scale: float = 1.0,
) -> torch.Tensor:
    """Normal floats of deviation ``scale``, integers in [-8, 8] (unsigned: [0, 8]), fair bools."""
    generator = torch.Generator().manual_seed(seed)
    size = list(shape)
    if dtype.is_floating_point:
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        values = torch.randn(size, dtype=wide, generator=generator) * scale
        return values.to(dtype).to(device)
    if dtype == torch.bool:
        return torch.randint(0, 2, size, generator=generator).to(dtype).to(device)
    lowest = -8 if dtype.is_signed else 0
    return torch.randint(lowest, 9, size, generator=generator).to(dtype).to(device)
