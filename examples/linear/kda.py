"""Kimi delta attention: the delta rule on a state whose channels decay each at their own rate."""

from __future__ import annotations

import torch

from examples.linear.channel_decay import channel_decay, reference
from examples.linear.delta_rule import random_rows
from tilesmith.numerics.compare import check_against


def kda(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, beta: torch.Tensor, gate: torch.Tensor
) -> torch.Tensor:
    """``gate`` is like ``k``, ``beta`` `[rows, length]`."""
    return channel_decay(q, k, v, torch.nn.functional.logsigmoid(gate.float()), beta)


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows, length, widths = (128, 2048, (64, 64)) if device == "cuda" else (4, 150, (32, 24))
    q, k, v, beta = random_rows(rows, length, widths, device, torch.float32)
    gate = torch.randn(k.shape, device=device) + 3
    report = check_against(
        kda(q, k, v, beta, gate),
        reference(q, k, v, torch.nn.functional.logsigmoid(gate), beta),
        reduction_length=length,
    )
    print(f"kda: relative error {report.relative_norm:.1e}")


if __name__ == "__main__":
    main()
