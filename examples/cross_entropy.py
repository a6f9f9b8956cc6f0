"""Mean cross entropy of rows of logits against integer labels.

Each row picks one logit by its label: a pointwise gather, so it goes through a flat view with one
index per lane (two index tensors in different positions would form a product instead). With a
gradient, the forward keeps the log-sum-exp of each row; the backward is pointwise: the softmax,
less one where the label is.
"""

from __future__ import annotations

from typing import Any

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against


@helion.kernel(ignore_warnings=[helion.exc.TensorOperationInWrapper])
def cross_entropy(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    n, v = logits.size()
    losses = torch.empty([n], dtype=torch.float32, device=logits.device)
    flat = logits.reshape(-1)
    for tile_n in hl.tile(n):
        picked = hl.load(flat, [tile_n.index * v + labels[tile_n]]).to(torch.float32)
        row = logits[tile_n, :].to(torch.float32)
        peak = torch.amax(row, dim=-1, keepdim=True)
        total = torch.sum(torch.exp(row - peak), dim=-1)
        # Shares of the mean: torch takes twice as long to average a few numbers as to add them.
        losses[tile_n] = (torch.log(total) + peak.squeeze(-1) - picked) / n
    return losses.sum() if n else losses.mean()


@helion.kernel
def cross_entropy_fwd(
    logits: torch.Tensor, labels: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The loss and the log-sum-exp of each row."""
    n, v = logits.size()
    wide = torch.promote_types(logits.dtype, torch.float32)
    losses = torch.empty([n], dtype=wide, device=logits.device)
    lse = torch.empty([n], dtype=wide, device=logits.device)
    flat = logits.reshape(-1)
    for tile_n in hl.tile(n):
        picked = hl.load(flat, [tile_n.index * v + labels[tile_n]]).to(wide)
        row = logits[tile_n, :].to(wide)
        peak = torch.amax(row, dim=-1, keepdim=True)
        total = torch.log(torch.sum(torch.exp(row - peak), dim=-1)) + peak.squeeze(-1)
        losses[tile_n] = total - picked
        lse[tile_n] = total
    return losses, lse


@helion.kernel
def cross_entropy_bwd(
    grad_losses: torch.Tensor, logits: torch.Tensor, labels: torch.Tensor, lse: torch.Tensor
) -> torch.Tensor:
    grad_logits = torch.empty_like(logits)
    for tile_n, tile_v in hl.tile(logits.size()):
        share = torch.exp(logits[tile_n, tile_v].to(lse.dtype) - lse[tile_n][:, None])
        is_label = labels[tile_n][:, None] == tile_v.index[None, :]
        share = torch.where(is_label, share - 1.0, share)
        grad_logits[tile_n, tile_v] = share * grad_losses[tile_n][:, None]
    return grad_logits


class CrossEntropy(torch.autograd.Function):
    """The loss of each row; labels get no gradient."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Run the forward kernel and keep the normalisation of each row."""
        losses, lse = cross_entropy_fwd(logits, labels)
        ctx.save_for_backward(logits, labels, lse)
        return losses

    @staticmethod
    def backward(ctx: Any, grad_losses: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Run the backward kernel."""
        return cross_entropy_bwd(grad_losses, *ctx.saved_tensors), None


def reference(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(logits.double(), labels)


def reference_fwd(logits: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    exact = logits.double()
    losses = torch.nn.functional.cross_entropy(exact, labels, reduction="none")
    return losses, torch.logsumexp(exact, -1)


def reference_bwd(
    grad_losses: torch.Tensor, logits: torch.Tensor, labels: torch.Tensor, lse: torch.Tensor
) -> torch.Tensor:
    share = torch.exp(logits.double() - lse.double()[:, None])
    share = share - torch.nn.functional.one_hot(labels, logits.size(1))
    return share * grad_losses.double()[:, None]


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    n, v = 128, 10_000
    logits = torch.randn(n, v, device=device)
    labels = torch.randint(v, [n], device=device)
    report = check_against(
        cross_entropy(logits, labels), reference(logits, labels), reduction_length=v
    )
    logits.requires_grad_()
    weights = torch.randn(n, device=device)
    CrossEntropy.apply(logits, labels).backward(weights)
    lse = torch.logsumexp(logits.detach().double(), -1)
    exact = reference_bwd(weights, logits.detach(), labels, lse)
    backward = check_against(logits.grad, exact, reduction_length=v)
    print(
        f"cross_entropy: relative error {report.relative_norm:.1e}, "
        f"backward {backward.relative_norm:.1e}"
    )


if __name__ == "__main__":
    main()
