"""Generalised Jensen-Shannon divergence of two sets of log-probabilities, with its gradient.

With the mixture `m = beta * p + (1 - beta) * q` it is `beta * KL(p, m) + (1 - beta) * KL(q, m)`; at
the ends of beta it is taken to be KL(p, q) and KL(q, p). One pass gives the loss and the gradient
by `log_q`. Rows whose label is `ignore_index` do not count.
"""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against

Two = tuple[torch.Tensor, torch.Tensor]


def divergence(log_q: torch.Tensor, log_p: torch.Tensor, beta: float) -> Two:
    """The terms of the sum and their derivatives by `log_q`; `beta` is known when compiling."""
    if beta == 0.0:
        p = torch.exp(log_p)
        return p * (log_p - log_q), -p
    if beta == 1.0:
        q = torch.exp(log_q)
        terms = q * (log_q - log_p)
        return terms, terms + q
    # Differences of logarithms, never their sum with the mixture's: close values keep their digits.
    apart = log_p - log_q
    is_more = apart > 0
    shrink = torch.expm1(-torch.abs(apart))
    below = torch.log1p(torch.where(is_more, 1 - beta, beta) * shrink)
    p_over_m = torch.where(is_more, -below, apart - below)
    # The smaller of both probabilities is a share of the larger: one exponential does.
    larger = torch.exp(torch.maximum(log_q, log_p))
    smaller = larger + larger * shrink
    q, p = torch.where(is_more, smaller, larger), torch.where(is_more, larger, smaller)
    slope = (1 - beta) * q * (p_over_m - apart)
    return beta * p * p_over_m + slope, slope


@helion.kernel(ignore_warnings=[helion.exc.TensorOperationInWrapper])
def jsd(
    log_q: torch.Tensor,
    log_p: torch.Tensor,
    labels: torch.Tensor | None = None,
    beta: hl.constexpr = 0.5,
    ignore_index: hl.constexpr = -100,
) -> Two:
    n, v = log_q.size()
    wide = torch.promote_types(log_q.dtype, torch.float32)
    losses = torch.empty([n], dtype=wide, device=log_q.device)
    grad = torch.empty_like(log_q)
    counted = n if labels is None else (labels != ignore_index).sum().item()
    share = 1.0 / max(counted, 1)
    for tile_n in hl.tile(n):
        total = hl.zeros([tile_n], dtype=wide)
        for tile_v in hl.tile(v):
            q, p = log_q[tile_n, tile_v].to(wide), log_p[tile_n, tile_v].to(wide)
            terms, slope = divergence(q, p, beta)
            if labels is not None:
                counts = (labels[tile_n] != ignore_index)[:, None]
                terms = torch.where(counts, terms, 0.0)
                slope = torch.where(counts, slope, 0.0)
            total = total + terms.sum(-1)
            grad[tile_n, tile_v] = slope * share
        losses[tile_n] = total * share
    return losses.sum(), grad


def reference(
    log_q: torch.Tensor,
    log_p: torch.Tensor,
    labels: torch.Tensor | None = None,
    beta: float = 0.5,
    ignore_index: int = -100,
) -> Two:
    log_q, log_p = log_q.double().requires_grad_(), log_p.double()
    q, p = log_q.exp(), log_p.exp()
    if beta in (0.0, 1.0):
        terms = p * (log_p - log_q) if beta == 0.0 else q * (log_q - log_p)
    else:
        m = beta * p + (1 - beta) * q
        terms = beta * p * (log_p - m.log()) + (1 - beta) * q * (log_q - m.log())
    if labels is not None:
        terms = terms[labels != ignore_index]
    loss = terms.sum() / max(len(terms), 1)
    (grad,) = torch.autograd.grad(loss, log_q)
    return loss.detach(), grad


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    n, v = (1024, 65_536) if device == "cuda" else (32, 500)
    log_q, log_p = (torch.randn(n, v, device=device).log_softmax(-1) for _ in range(2))
    labels = torch.where(torch.arange(n, device=device) % 3 == 0, -100, 1)
    for chosen, beta in ((None, 0.0), (None, 0.1), (labels, 0.5), (labels, 1.0)):
        actual = jsd(log_q, log_p, chosen, beta)
        exact = reference(log_q, log_p, chosen, beta)
        loss, grad = (check_against(*pair, reduction_length=n * v) for pair in zip(actual, exact))
        print(f"jsd: beta {beta}, loss {loss.relative_norm:.1e}, grad {grad.relative_norm:.1e}")


if __name__ == "__main__":
    main()
