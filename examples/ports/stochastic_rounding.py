"""Stochastic rounding to bf16: up or down by chance, so that the mean is the number itself.

Sums of many small updates in bf16 need it: rounding to nearest loses updates below half an ulp.
Random bits are added below the bits that bf16 keeps, then those are cut off; a carry rounds up.
"""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl


@helion.kernel
def round_stochastically(x: torch.Tensor, seed: int) -> torch.Tensor:
    """fp32 numbers as bf16; infinities and NaN stay what they are."""
    out = torch.empty(x.shape, dtype=torch.bfloat16, device=x.device)
    flat_x, flat_out = x.view(-1), out.view(-1)
    for tile in hl.tile(x.numel()):
        values = flat_x[tile]
        bits = values.view(torch.int32)
        noise = hl.randint([tile], 0, 1 << 16, seed)
        rounded = ((bits + noise) & -(1 << 16)).view(torch.float32)
        flat_out[tile] = torch.where(torch.isfinite(values), rounded, values).to(torch.bfloat16)
    return out


def neighbours(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The bf16 numbers next to ``x`` towards zero and away from it, equal where ``x`` is one."""
    toward = (x.view(torch.int32) & -(1 << 16)).view(torch.float32)
    away = ((toward.view(torch.int32) + (1 << 16)) & -(1 << 16)).view(torch.float32)
    return toward.double(), torch.where(toward == x, toward, away).double()


def chance_away(x: torch.Tensor) -> torch.Tensor:
    """How likely ``x`` is rounded away from zero."""
    toward, away = neighbours(x)
    return torch.where(away == toward, 0.0, (x.double() - toward) / (away - toward))


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x = torch.randn(1 << 20 if device == "cuda" else 1 << 14, device=device)
    result = round_stochastically(x, 7).double()
    toward, away = neighbours(x)
    assert torch.all((result == toward) | (result == away))
    # Independent draws: their sum lies within five standard deviations of what is expected.
    chance = chance_away(x)
    deviation = ((result == away).double() * (away != toward) - chance).sum()
    sigma = (chance * (1 - chance)).sum().sqrt()
    assert deviation.abs() < 5 * sigma
    print(f"stochastic_rounding: {float(deviation / sigma):+.2f} standard deviations from the mean")


if __name__ == "__main__":
    main()
