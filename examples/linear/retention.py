"""Retention: a constant decay for each head, slower from head to head."""

from __future__ import annotations

import torch

from examples.linear.scalar_decay import ScalarDecay, random_rows, reference
from tilesmith.numerics.compare import check_against


def retention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, heads: int) -> torch.Tensor:
    """Rows are heads of sequences, the head counting fastest."""
    return ScalarDecay.apply(q, k, v, head_decays(q, heads))


def head_decays(q: torch.Tensor, heads: int) -> torch.Tensor:
    """Log decays ``log(1 - 2^(-5 - head))`` for every position."""
    head = torch.arange(q.size(0), device=q.device) % heads
    decay = torch.log1p(-torch.exp2(-5.0 - head.double())).float()
    return decay[:, None].expand(q.shape[:2]).contiguous()


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows, length, widths = (128, 2048, (64, 64)) if device == "cuda" else (4, 150, (32, 24))
    q, k, v = random_rows(rows, length, widths, device, torch.float32)
    # fp32 products run in tf32 on a GPU, whose mantissa is fp16's.
    report = check_against(
        retention(q, k, v, 4),
        reference(q, k, v, head_decays(q, 4)),
        reduction_length=length,
        intermediate=[torch.float16] * 2,
    )
    print(f"retention: relative error {report.relative_norm:.1e}")


if __name__ == "__main__":
    main()
