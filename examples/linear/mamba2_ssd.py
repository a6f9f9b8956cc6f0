"""Mamba-2 as linear attention: the step size scales the input and sets the decay."""

from __future__ import annotations

import torch

from examples.linear.scalar_decay import ScalarDecay, random_rows, reference
from tilesmith.numerics.compare import check_against


def mamba2_ssd(
    x: torch.Tensor, dt: torch.Tensor, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor
) -> torch.Tensor:
    """The state-space model `[rows, length, p]` of inputs `x`.

    Args:
        x: inputs `[rows, length, p]`; a row is one head of one sequence.
        dt: step sizes `[rows, length]`.
        a: the decay rate of each row, negative.
        b: input projections `[rows, length, n]`.
        c: output projections, like `b`.
    """
    return ScalarDecay.apply(c, b, x * dt[..., None].to(x.dtype), dt * a[:, None])


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows, length, widths = (128, 2048, (64, 64)) if device == "cuda" else (4, 150, (32, 24))
    c, b, x = random_rows(rows, length, widths, device, torch.float32)
    dt = torch.rand(rows, length, device=device)
    a = -torch.rand(rows, device=device) * 0.2
    exact = reference(c, b, x * dt[..., None], dt * a[:, None])
    # fp32 products run in tf32 on a GPU, whose mantissa is fp16's.
    report = check_against(
        mamba2_ssd(x, dt, a, b, c),
        exact,
        reduction_length=length,
        intermediate=[torch.float16] * 2,
    )
    print(f"mamba2_ssd: relative error {report.relative_norm:.1e}")


if __name__ == "__main__":
    main()
