"""The buffers of all ranks of one job, as kernels of this folder see them.

Symmetric memory gives every rank the tensors of all its peers; a kernel takes them as a tuple and
its loops over peers are unrolled. Here the ranks are rows of one tensor in one process, which is
how the examples are run and checked without several devices.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch


def random_buffers(
    world: int, shape: Sequence[int], dtype: torch.dtype, device: str, seed: int = 0
) -> tuple[torch.Tensor, ...]:
    """One random tensor for each rank."""
    generator = torch.Generator().manual_seed(seed)
    whole = torch.randn(world, *shape, generator=generator)
    return tuple(buffer.to(dtype).to(device) for buffer in whole)
