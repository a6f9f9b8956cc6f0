"""Gated linear attention: every channel of the keys has a decay of its own, made from the data."""

from __future__ import annotations

import torch

from examples.linear.channel_decay import ChannelDecay, reference
from examples.linear.scalar_decay import random_rows
from tilesmith.numerics.compare import check_against

TEMPERATURE = 16.0


def full_gla(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    """``gate`` is like ``k``; the temperature keeps decays close to one."""
    return ChannelDecay.apply(q, k, v, log_decays(gate))


def log_decays(gate: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.logsigmoid(gate.float()) / TEMPERATURE


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows, length, widths = (128, 2048, (64, 64)) if device == "cuda" else (4, 150, (32, 24))
    q, k, v = random_rows(rows, length, widths, device, torch.float32)
    gate = torch.randn(k.shape, device=device)
    report = check_against(
        full_gla(q, k, v, gate), reference(q, k, v, log_decays(gate)), reduction_length=length
    )
    print(f"full_gla: relative error {report.relative_norm:.1e}")


if __name__ == "__main__":
    main()
