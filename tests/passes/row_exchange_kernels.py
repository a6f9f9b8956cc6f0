"""Kernels with rows of a product that look as if their tiles could be reduced where they are."""

from __future__ import annotations

from typing import Any

import torch

import tilesmith as helion
import tilesmith.language as hl

STATIC: Any = helion.kernel(static_shapes=True)


@STATIC
def reduced_before_the_loop(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    """Rows of another tensor, summed while nobody has met."""
    n = hl.specialize(y.size(1))
    out = torch.empty([x.size(0), n], dtype=torch.float32, device=x.device)
    for tile_m in hl.tile(x.size(0)):
        scale = z[tile_m, :].sum(-1)
        acc = hl.zeros([tile_m, n], dtype=torch.float32)
        for tile_k in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, :])
        out[tile_m, :] = (acc - acc.mean(-1, keepdim=True)) * scale[:, None]
    return out


@STATIC
def stored_over(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The mean replaces an element that the program of another tile has stored."""
    n = hl.specialize(y.size(1))
    out = torch.empty([x.size(0), n], dtype=torch.float32, device=x.device)
    for tile_m in hl.tile(x.size(0)):
        acc = hl.zeros([tile_m, n], dtype=torch.float32)
        for tile_k in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, :])
        mean = acc.mean(-1)
        out[tile_m, :] = acc - mean[:, None]
        out[tile_m, 40] = mean
    return out


@STATIC
def layernorm_with_statistics(
    x: torch.Tensor, y: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """As a forward pass is written that leaves something to the backward pass."""
    n = hl.specialize(y.size(1))
    out = torch.empty([x.size(0), n], dtype=torch.float32, device=x.device)
    means = torch.empty([x.size(0)], dtype=torch.float32, device=x.device)
    rstds = torch.empty([x.size(0)], dtype=torch.float32, device=x.device)
    for tile_m in hl.tile(x.size(0)):
        acc = hl.zeros([tile_m, n], dtype=torch.float32)
        for tile_k in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, :])
        mean = acc.sum(-1) / n
        centred = acc - mean[:, None]
        rstd = torch.rsqrt((centred * centred).sum(-1) / n + 1e-5)
        out[tile_m, :] = centred * rstd[:, None]
        means[tile_m] = mean
        rstds[tile_m] = rstd
    return out, means, rstds
