"""Linear attention without decay: the state is the plain sum of all keys times values."""

from __future__ import annotations

import torch

from examples.linear.scalar_decay import ScalarDecay, random_rows, reference
from tilesmith.numerics.compare import check_against


def vanilla(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """`[rows, length, d]` in, `[rows, length, dv]` out; a row is one head of one sequence."""
    return ScalarDecay.apply(q, k, v, no_decay(q))


def no_decay(q: torch.Tensor) -> torch.Tensor:
    return torch.zeros(q.shape[:2], dtype=torch.float32, device=q.device)


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows, length, widths = (128, 2048, (64, 64)) if device == "cuda" else (4, 150, (32, 24))
    q, k, v = random_rows(rows, length, widths, device, torch.float32)
    # fp32 products run in tf32 on a GPU, whose mantissa is fp16's.
    report = check_against(
        vanilla(q, k, v),
        reference(q, k, v, no_decay(q)),
        reduction_length=length,
        intermediate=[torch.float16] * 2,
    )
    print(f"vanilla: relative error {report.relative_norm:.1e}")


if __name__ == "__main__":
    main()
