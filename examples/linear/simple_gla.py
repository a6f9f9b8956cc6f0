"""Simple gated linear attention: a decay for each head and position, made from the data.

Also runs sequences of different lengths that lie end to end in one buffer.
"""

from __future__ import annotations

import torch

from examples.linear.scalar_decay import (
    CHUNK,
    ScalarDecay,
    random_rows,
    reference,
    reference_varlen,
    scalar_decay_varlen,
)
from tilesmith.numerics.compare import check_against


def simple_gla(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, gate: torch.Tensor
) -> torch.Tensor:
    """``gate`` `[rows, length]` is squashed to a decay between 0 and 1."""
    return ScalarDecay.apply(q, k, v, torch.nn.functional.logsigmoid(gate.float()))


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows, length, widths = (128, 2048, (64, 64)) if device == "cuda" else (4, 150, (32, 24))
    q, k, v = random_rows(rows, length, widths, device, torch.float32)
    gate = torch.randn(rows, length, device=device) + 3
    decays = torch.nn.functional.logsigmoid(gate)
    # fp32 products run in tf32 on a GPU, whose mantissa is fp16's.
    rounded = [torch.float16] * 2
    even = check_against(
        simple_gla(q, k, v, gate),
        reference(q, k, v, decays),
        reduction_length=length,
        intermediate=rounded,
    )
    offsets = torch.tensor([0, 0, length // 3, length // 3 + 1, length], device=device)
    args = (q, k, v, decays, offsets, CHUNK)
    uneven = check_against(
        scalar_decay_varlen(*args),
        reference_varlen(*args),
        reduction_length=length,
        intermediate=rounded,
    )
    print(
        f"simple_gla: relative error {even.relative_norm:.1e}, "
        f"of different lengths {uneven.relative_norm:.1e}"
    )


if __name__ == "__main__":
    main()
