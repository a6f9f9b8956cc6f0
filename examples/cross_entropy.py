"""Mean cross entropy of rows of logits against integer labels.

Each row picks one logit by its label: a pointwise gather, so it goes through a flat view with one
index per lane (two index tensors in different positions would form a product instead).
"""

from __future__ import annotations

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
        losses[tile_n] = torch.log(total) + peak.squeeze(-1) - picked
    return losses.mean()


def reference(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(logits.double(), labels)


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    n, v = 128, 10_000
    logits = torch.randn(n, v, device=device)
    labels = torch.randint(v, [n], device=device)
    report = check_against(
        cross_entropy(logits, labels), reference(logits, labels), reduction_length=v
    )
    print(f"cross_entropy: relative error {report.relative_norm:.1e}")


if __name__ == "__main__":
    main()
