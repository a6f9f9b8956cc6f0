"""Kernels for the layouts and types of one model; what the gallery has is general.

`rope_heads` reads queries, keys and values as one product has left them, turns queries and keys by
their positions and writes each where attention reads it: no copies between. `adamw_copying` keeps
parameters in fp32 and writes the narrow copies that the model computes with, in the same pass.
"""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl

Three = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
# Rows of a head have few elements: programs take many rows.
ROWS = helion.Config(block_sizes=[1, 1, 32], num_warps=4)


@helion.kernel(config=ROWS)
def rope_heads(qkv: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> Three:
    """Heads of `[batch, length, 3, heads, d]`, each `[batch * heads, length, d]`."""
    batch, length, _, heads, dim = qkv.size()
    half = hl.specialize(dim) // 2
    parts = qkv.permute(2, 0, 3, 1, 4)
    shape = [batch * heads, length, dim]
    q = torch.empty(shape, dtype=qkv.dtype, device=qkv.device)
    k = torch.empty(shape, dtype=qkv.dtype, device=qkv.device)
    v = torch.empty(shape, dtype=qkv.dtype, device=qkv.device)
    by_heads = [batch, heads, length, dim]
    q_out, k_out, v_out = q.view(by_heads), k.view(by_heads), v.view(by_heads)
    wide = torch.promote_types(qkv.dtype, torch.float32)
    for tile_b, tile_h, tile_s in hl.tile([batch, heads, length]):
        cos_low, cos_high = cos[tile_s, :half].to(wide), cos[tile_s, half:].to(wide)
        sin_low, sin_high = sin[tile_s, :half].to(wide), sin[tile_s, half:].to(wide)
        for part, out in ((0, q_out), (1, k_out)):
            low = parts[part, tile_b, tile_h, tile_s, :half].to(wide)
            high = parts[part, tile_b, tile_h, tile_s, half:].to(wide)
            out[tile_b, tile_h, tile_s, :half] = low * cos_low - high * sin_low
            out[tile_b, tile_h, tile_s, half:] = high * cos_high + low * sin_high
        v_out[tile_b, tile_h, tile_s, :] = parts[2, tile_b, tile_h, tile_s, :]
    return q, k, v


@helion.kernel(config=ROWS)
def rope_heads_bwd(
    grad_q: torch.Tensor,
    grad_k: torch.Tensor,
    grad_v: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    batch: int,
) -> torch.Tensor:
    length, dim = grad_q.size(1), grad_q.size(2)
    batch = hl.specialize(batch)
    heads = grad_q.size(0) // batch
    half = hl.specialize(dim) // 2
    grad = torch.empty([batch, length, 3, heads, dim], dtype=grad_q.dtype, device=grad_q.device)
    parts = grad.permute(2, 0, 3, 1, 4)
    by_heads = [batch, heads, length, dim]
    q, k, v = grad_q.view(by_heads), grad_k.view(by_heads), grad_v.view(by_heads)
    wide = torch.promote_types(grad_q.dtype, torch.float32)
    for tile_b, tile_h, tile_s in hl.tile([batch, heads, length]):
        cos_low, cos_high = cos[tile_s, :half].to(wide), cos[tile_s, half:].to(wide)
        sin_low, sin_high = sin[tile_s, :half].to(wide), sin[tile_s, half:].to(wide)
        for part, given in ((0, q), (1, k)):
            low = given[tile_b, tile_h, tile_s, :half].to(wide)
            high = given[tile_b, tile_h, tile_s, half:].to(wide)
            parts[part, tile_b, tile_h, tile_s, :half] = low * cos_low + high * sin_high
            parts[part, tile_b, tile_h, tile_s, half:] = high * cos_high - low * sin_low
        parts[2, tile_b, tile_h, tile_s, :] = v[tile_b, tile_h, tile_s, :]
    return grad


@helion.kernel
def adamw_copying(
    copy: torch.Tensor,
    param: torch.Tensor,
    grad: torch.Tensor,
    mean: torch.Tensor,
    square: torch.Tensor,
    step: int,
    lr: float,
    betas: tuple[float, float],
    eps: float,
    decay: float,
) -> torch.Tensor:
    """One step of AdamW, of which the model sees the copy; ``step`` counts from 1."""
    beta1, beta2 = betas
    correction1, correction2 = 1 - beta1**step, 1 - beta2**step
    flat = [x.view(-1) for x in (copy, param, grad, mean, square)]
    for tile in hl.tile(param.numel()):
        g = flat[2][tile].to(torch.float32)
        m = flat[3][tile] * beta1 + g * (1 - beta1)
        s = flat[4][tile] * beta2 + g * g * (1 - beta2)
        change = (m / correction1) / (torch.sqrt(s / correction2) + eps)
        new = flat[1][tile] * (1 - lr * decay) - change * lr
        flat[0][tile] = new.to(copy.dtype)
        flat[1][tile] = new
        flat[3][tile] = m
        flat[4][tile] = s
    return copy
