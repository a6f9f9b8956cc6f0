"""Gated DeltaNet: the delta rule on a state that also decays."""

from __future__ import annotations

import torch

from examples.linear.delta_rule import CHUNK, delta_rule, random_rows, reference
from tilesmith.numerics.compare import check_against


def gated_delta(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, beta: torch.Tensor, gate: torch.Tensor
) -> torch.Tensor:
    """``gate`` `[rows, length]` is squashed to a decay between 0 and 1."""
    return delta_rule(q, k, v, beta, torch.nn.functional.logsigmoid(gate.float()), CHUNK)


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows, length, widths = (128, 2048, (64, 64)) if device == "cuda" else (4, 150, (32, 24))
    q, k, v, beta = random_rows(rows, length, widths, device, torch.float32)
    gate = torch.randn(rows, length, device=device) + 3
    report = check_against(
        gated_delta(q, k, v, beta, gate),
        reference(q, k, v, beta, torch.nn.functional.logsigmoid(gate)),
        reduction_length=length,
    )
    print(f"gated_delta: relative error {report.relative_norm:.1e}")


if __name__ == "__main__":
    main()
