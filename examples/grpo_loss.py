"""Group relative policy optimisation: the clipped loss of every sampled token, and its gradient.

Per token: how much likelier the new policy makes it than the old one (none: the policies are one),
times the advantage of its sequence, clipped, plus `beta` times an estimate of the divergence from a
reference policy. Shows optional tensors, a branch on a runtime float that is only there if a tensor
is given, 3-D tiles, and a softmax over the vocabulary in one pass.
"""

from __future__ import annotations

from typing import Any

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against

Tensors = tuple[torch.Tensor, ...]


def clipped_objective(
    ratio: torch.Tensor, advantage: torch.Tensor, eps_low: float, eps_high: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """The smaller of the plain and the clipped objective, and where it is the clipped one."""
    clipped = torch.clamp(ratio, 1 - eps_low, 1 + eps_high)
    is_clipped = clipped * advantage < ratio * advantage
    return torch.minimum(ratio * advantage, clipped * advantage), is_clipped


@helion.kernel
def grpo_loss_fwd(
    logits: torch.Tensor,
    ids: torch.Tensor,
    advantages: torch.Tensor,
    old_logp: torch.Tensor | None,
    ref_logp: torch.Tensor | None,
    mask: torch.Tensor | None,
    temperature: float = 1.0,
    beta: float = 0.04,
    eps_low: float = 0.2,
    eps_high: float = 0.2,
) -> Tensors:
    batch, length = ids.size()
    _, positions, vocab = logits.size()
    wide = torch.promote_types(logits.dtype, torch.float32)
    lowest = torch.finfo(wide).min
    loss = torch.empty([batch, length], dtype=wide, device=logits.device)
    lse = torch.empty_like(loss)
    kl = torch.zeros_like(loss)
    is_clipped = torch.empty([batch, length], dtype=torch.bool, device=logits.device)
    flat = logits.reshape(-1)
    for tile_b, tile_t in hl.tile([batch, length]):
        # Not -inf: the first logits of a row may all be that, and have powers of 0 then.
        peak = hl.full([tile_b, tile_t], lowest, dtype=wide)
        total = hl.zeros([tile_b, tile_t], dtype=wide)
        for tile_v in hl.tile(vocab):
            chunk = logits[tile_b, tile_t, tile_v].to(wide) / temperature
            new_peak = torch.maximum(peak, chunk.amax(-1))
            powers = torch.exp(chunk - new_peak[:, :, None]).sum(-1)
            total = total * torch.exp(peak - new_peak) + powers
            peak = new_peak
        normaliser = peak + torch.log(total)
        row = tile_b.index[:, None] * positions + tile_t.index[None, :]
        picked = hl.load(flat, [row * vocab + ids[tile_b, tile_t]]).to(wide)
        logp = picked / temperature - normaliser
        old = logp
        if old_logp is not None:
            old = old_logp[tile_b, tile_t].to(wide)
        advantage = advantages[tile_b].to(wide)[:, None]
        gained, clipped = clipped_objective(torch.exp(logp - old), advantage, eps_low, eps_high)
        result = -gained
        if ref_logp is not None and beta != 0.0:
            apart = ref_logp[tile_b, tile_t].to(wide) - logp
            estimate = torch.expm1(apart) - apart
            result = result + beta * estimate
            kl[tile_b, tile_t] = estimate
        if mask is not None:
            result = torch.where(mask[tile_b, tile_t] != 0, result, 0.0)
        loss[tile_b, tile_t] = result
        lse[tile_b, tile_t] = normaliser
        is_clipped[tile_b, tile_t] = clipped
    return loss, kl, is_clipped, lse


@helion.kernel
def grpo_loss_bwd(
    grad_loss: torch.Tensor,
    lse: torch.Tensor,
    logits: torch.Tensor,
    ids: torch.Tensor,
    advantages: torch.Tensor,
    old_logp: torch.Tensor | None,
    ref_logp: torch.Tensor | None,
    mask: torch.Tensor | None,
    temperature: float = 1.0,
    beta: float = 0.04,
    eps_low: float = 0.2,
    eps_high: float = 0.2,
) -> torch.Tensor:
    batch, length = ids.size()
    _, positions, vocab = logits.size()
    wide = torch.promote_types(logits.dtype, torch.float32)
    # The position after the last token has logits, but no loss.
    grad_logits = torch.zeros_like(logits)
    flat = logits.reshape(-1)
    for tile_b, tile_t in hl.tile([batch, length]):
        normaliser = lse[tile_b, tile_t]
        token = ids[tile_b, tile_t]
        row = tile_b.index[:, None] * positions + tile_t.index[None, :]
        logp = hl.load(flat, [row * vocab + token]).to(wide) / temperature - normaliser
        old = logp
        if old_logp is not None:
            old = old_logp[tile_b, tile_t].to(wide)
        advantage = advantages[tile_b].to(wide)[:, None]
        ratio = torch.exp(logp - old)
        _, clipped = clipped_objective(ratio, advantage, eps_low, eps_high)
        slope = torch.where(clipped, 0.0, -ratio * advantage)
        if ref_logp is not None and beta != 0.0:
            slope = slope - beta * torch.expm1(ref_logp[tile_b, tile_t].to(wide) - logp)
        if mask is not None:
            slope = torch.where(mask[tile_b, tile_t] != 0, slope, 0.0)
        slope = slope * grad_loss[tile_b, tile_t] / temperature
        for tile_v in hl.tile(vocab):
            chunk = logits[tile_b, tile_t, tile_v].to(wide) / temperature
            share = torch.exp(chunk - normaliser[:, :, None])
            is_token = tile_v.index[None, None, :] == token[:, :, None]
            grad = slope[:, :, None] * (torch.where(is_token, 1.0, 0.0) - share)
            grad_logits[tile_b, tile_t, tile_v] = grad
    return grad_logits


class GRPOLoss(torch.autograd.Function):
    """Loss per token, with the divergence and what was clipped; only logits get a gradient."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, *others: Any) -> Tensors:
        """Run the forward kernel; `others` are the rest of its arguments."""
        loss, kl, is_clipped, lse = grpo_loss_fwd(logits, *others)
        ctx.save_for_backward(lse, logits)
        ctx.others = others
        ctx.mark_non_differentiable(kl, is_clipped)
        return loss, kl, is_clipped

    @staticmethod
    def backward(ctx: Any, grad_loss: torch.Tensor, *_: Any) -> tuple[torch.Tensor | None, ...]:
        """Run the backward kernel."""
        grad = grpo_loss_bwd(grad_loss, *ctx.saved_tensors, *ctx.others)
        return grad, *(None for _ in ctx.others)


def reference(
    logits: torch.Tensor,
    ids: torch.Tensor,
    advantages: torch.Tensor,
    old_logp: torch.Tensor | None,
    ref_logp: torch.Tensor | None,
    mask: torch.Tensor | None,
    temperature: float = 1.0,
    beta: float = 0.04,
    eps_low: float = 0.2,
    eps_high: float = 0.2,
) -> Tensors:
    scaled = logits.double()[:, : ids.size(1)] / temperature
    lse = scaled.logsumexp(-1)
    logp = scaled.gather(-1, ids[:, :, None]).squeeze(-1) - lse
    ratio = torch.exp(logp - (logp.detach() if old_logp is None else old_logp.double()))
    advantage = advantages.double()[:, None]
    clipped = ratio.clamp(1 - eps_low, 1 + eps_high)
    loss = -torch.minimum(ratio * advantage, clipped * advantage)
    kl = torch.zeros_like(loss)
    if ref_logp is not None and beta != 0.0:
        apart = ref_logp.double() - logp
        kl = torch.exp(apart) - apart - 1
        loss = loss + beta * kl
    if mask is not None:
        loss = torch.where(mask != 0, loss, 0.0)
    is_low = (ratio < 1 - eps_low) & (advantage < 0)
    is_high = (ratio > 1 + eps_high) & (advantage > 0)
    return loss, kl, is_low | is_high, lse


def reference_bwd(
    grad_loss: torch.Tensor, lse: torch.Tensor, logits: torch.Tensor, *others: Any
) -> torch.Tensor:
    logits = logits.double().requires_grad_()
    loss, *_ = reference(logits, *others)
    (grad,) = torch.autograd.grad(loss, logits, grad_loss.double())
    return grad


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    batch, length, vocab = (8, 2048, 64_000) if device == "cuda" else (4, 31, 2000)
    logits = torch.randn(
        batch, length + 1, vocab, device=device, dtype=torch.bfloat16, requires_grad=True
    )
    ids = torch.randint(vocab, [batch, length], device=device)
    advantages = torch.randn(batch, device=device)
    logp = logits.detach()[:, :length].float().log_softmax(-1).gather(-1, ids[:, :, None])
    old, ref = (logp.squeeze(-1) + 0.3 * torch.randn(batch, length, device=device) for _ in "or")
    mask = torch.rand(batch, length, device=device) < 0.9
    others = (ids, advantages, old, ref, mask, 0.9)
    loss, *_ = GRPOLoss.apply(logits, *others)
    loss.sum().backward()
    exact, *_ = reference(logits.detach(), *others)
    forward = check_against(loss.detach(), exact, reduction_length=vocab)
    wanted = reference_bwd(torch.ones_like(loss), loss, logits.detach(), *others)
    backward = check_against(logits.grad, wanted, reduction_length=vocab)
    print(
        f"grpo_loss: relative error forward {forward.relative_norm:.1e}, "
        f"backward {backward.relative_norm:.1e}"
    )


if __name__ == "__main__":
    main()
