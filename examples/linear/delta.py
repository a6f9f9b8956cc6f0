"""DeltaNet: linear attention that writes only what its state does not hold yet."""

from __future__ import annotations

import torch

from examples.linear.delta_rule import CHUNK, delta_rule, random_rows, reference
from tilesmith.numerics.compare import check_against


def delta(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, beta: torch.Tensor) -> torch.Tensor:
    """Keys have length one; ``beta`` `[rows, length]` says how far a value is corrected."""
    return delta_rule(q, k, v, beta, torch.zeros_like(beta), CHUNK)


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows, length, widths = (128, 2048, (64, 64)) if device == "cuda" else (4, 150, (32, 24))
    q, k, v, beta = random_rows(rows, length, widths, device, torch.float32)
    report = check_against(
        delta(q, k, v, beta),
        reference(q, k, v, beta, torch.zeros_like(beta)),
        reduction_length=length,
    )
    print(f"delta: relative error {report.relative_norm:.1e}")


if __name__ == "__main__":
    main()
