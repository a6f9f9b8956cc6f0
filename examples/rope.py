"""Rotary position embedding of queries and keys in one launch, forward and backward.

Channel `i` of the first half of a head and channel `i` of the second half are rotated by an angle
that depends on the position. There may be fewer key heads than query heads (grouped queries); the
loops over heads are unrolled: a program reads cosines and sines once for all heads. In
`rope_interleaved` neighbouring channels are the pairs, taken apart and put together in registers.
"""

from __future__ import annotations

from typing import Any

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against

Pair = tuple[torch.Tensor, torch.Tensor]


@helion.kernel
def rope(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> Pair:
    batch, q_heads, length, dim = q.size()
    q_heads, k_heads = hl.specialize(q_heads), hl.specialize(k.size(1))
    half = hl.specialize(dim) // 2
    # Contiguous, whatever views the inputs are: what comes next need not copy them.
    q_out, k_out = (torch.empty(x.size(), dtype=x.dtype, device=x.device) for x in (q, k))
    wide = torch.promote_types(q.dtype, torch.float32)
    for tile_b, tile_s in hl.tile([batch, length]):
        cos_low, cos_high = cos[tile_s, :half].to(wide), cos[tile_s, half:].to(wide)
        sin_low, sin_high = sin[tile_s, :half].to(wide), sin[tile_s, half:].to(wide)
        for x, out, heads in ((q, q_out, q_heads), (k, k_out, k_heads)):
            for head in hl.static_range(heads):
                low = x[tile_b, head, tile_s, :half].to(wide)
                high = x[tile_b, head, tile_s, half:].to(wide)
                out[tile_b, head, tile_s, :half] = low * cos_low - high * sin_low
                out[tile_b, head, tile_s, half:] = high * cos_high + low * sin_high
    return q_out, k_out


@helion.kernel
def rope_bwd(
    grad_q: torch.Tensor, grad_k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> Pair:
    batch, q_heads, length, dim = grad_q.size()
    q_heads, k_heads = hl.specialize(q_heads), hl.specialize(grad_k.size(1))
    half = hl.specialize(dim) // 2
    q_out, k_out = torch.empty_like(grad_q), torch.empty_like(grad_k)
    wide = torch.promote_types(grad_q.dtype, torch.float32)
    for tile_b, tile_s in hl.tile([batch, length]):
        cos_low, cos_high = cos[tile_s, :half].to(wide), cos[tile_s, half:].to(wide)
        sin_low, sin_high = sin[tile_s, :half].to(wide), sin[tile_s, half:].to(wide)
        for grad, out, heads in ((grad_q, q_out, q_heads), (grad_k, k_out, k_heads)):
            for head in hl.static_range(heads):
                low = grad[tile_b, head, tile_s, :half].to(wide)
                high = grad[tile_b, head, tile_s, half:].to(wide)
                out[tile_b, head, tile_s, :half] = low * cos_low + high * sin_high
                out[tile_b, head, tile_s, half:] = high * cos_high - low * sin_low
    return q_out, k_out


class RoPE(torch.autograd.Function):
    """Rotated queries and keys; the angles get no gradient."""

    @staticmethod
    def forward(
        ctx: Any, q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
    ) -> Pair:
        """Run the forward kernel; the angles are all the backward needs."""
        ctx.save_for_backward(cos, sin)
        return rope(q, k, cos, sin)

    @staticmethod
    def backward(
        ctx: Any, grad_q: torch.Tensor, grad_k: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        """Run the backward kernel."""
        return *rope_bwd(grad_q, grad_k, *ctx.saved_tensors), None, None


@helion.kernel
def rope_interleaved(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    batch, heads, length, _ = x.size()
    dim, half = hl.specialize((x.size(3), cos.size(1)))
    out = torch.empty_like(x)
    wide = torch.promote_types(x.dtype, torch.float32)
    for tile_b, tile_h, tile_s in hl.tile([batch, heads, length]):
        channels = x[tile_b, tile_h, tile_s, :].to(wide)
        even, odd = hl.split(channels.reshape(tile_b, tile_h, tile_s, half, 2))
        turn, lift = cos[tile_s, :].to(wide), sin[tile_s, :].to(wide)
        turned = hl.join(even * turn - odd * lift, odd * turn + even * lift)
        out[tile_b, tile_h, tile_s, :] = turned.reshape(tile_b, tile_h, tile_s, dim)
    return out


class InterleavedRoPE(torch.autograd.Function):
    """One tensor with its neighbouring channels rotated; the gradient is rotated back."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """Run the kernel."""
        ctx.save_for_backward(cos, sin)
        return rope_interleaved(x, cos, sin)

    @staticmethod
    def backward(ctx: Any, grad_out: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        """Run the kernel with the opposite angles."""
        cos, sin = ctx.saved_tensors
        return rope_interleaved(grad_out, cos, -sin), None, None


def angles(length: int, dim: int, device: str, dtype: torch.dtype) -> Pair:
    """Cosines and sines for positions up to `length`, the same for both halves of a head."""
    rates = 10_000.0 ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    phase = torch.arange(length, dtype=torch.float64)[:, None] * rates
    both = torch.cat([phase, phase], dim=1)
    return both.cos().to(device, dtype), both.sin().to(device, dtype)


def rotate_half(x: torch.Tensor) -> torch.Tensor:
    low, high = x.chunk(2, dim=-1)
    return torch.cat([-high, low], dim=-1)


def reference(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> Pair:
    cos, sin = cos.double(), sin.double()
    q, k = q.double(), k.double()
    return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin


def reference_bwd(
    grad_q: torch.Tensor, grad_k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> Pair:
    # Linear: the gradient does not depend on where it is taken.
    q, k = (torch.zeros_like(grad.double(), requires_grad=True) for grad in (grad_q, grad_k))
    outs = reference(q, k, cos, sin)
    found_q, found_k = torch.autograd.grad(outs, (q, k), (grad_q.double(), grad_k.double()))
    return found_q, found_k


def reference_interleaved(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    even, odd = x.double()[..., 0::2], x.double()[..., 1::2]
    cos, sin = cos.double(), sin.double()
    return torch.stack([even * cos - odd * sin, odd * cos + even * sin], dim=-1).flatten(-2)


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    q = torch.randn(1, 4, 128, 64, device=device, requires_grad=True)
    k = torch.randn(1, 2, 128, 64, device=device, requires_grad=True)
    cos, sin = angles(128, 64, device, torch.float32)
    grads = torch.randn_like(q), torch.randn_like(k)
    outs = RoPE.apply(q, k, cos, sin)
    torch.autograd.backward(outs, grads)
    exact = reference(q.detach(), k.detach(), cos, sin)
    exact_grads = reference_bwd(*grads, cos, sin)
    worst = max(
        check_against(actual, wanted, reduction_length=2).relative_norm
        for actual, wanted in zip((*outs, q.grad, k.grad), (*exact, *exact_grads))
    )
    print(f"rope: relative error {worst:.1e}")
    half = cos[:, :32].contiguous(), sin[:, :32].contiguous()
    turned = rope_interleaved(q.detach(), *half)
    report = check_against(turned, reference_interleaved(q.detach(), *half), reduction_length=2)
    print(f"rope_interleaved: relative error {report.relative_norm:.1e}")


if __name__ == "__main__":
    main()
