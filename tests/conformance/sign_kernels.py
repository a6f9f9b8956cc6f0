"""Signs that equality does not see: of zeros, shown as bits."""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.conformance.case import EXACT, Args, Case, blocks


@helion.kernel
def negated_bits(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0)], dtype=torch.int32, device=x.device)
    for t in hl.tile(x.size(0)):
        out[t] = (-x[t]).view(torch.int32)
    return out


@helion.kernel
def clamped_bits(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty([4, x.size(0)], dtype=torch.int32, device=x.device)
    for t in hl.tile(x.size(0)):
        out[0, t] = torch.relu(x[t]).view(torch.int32)
        out[1, t] = x[t].clamp(min=0.0).view(torch.int32)
        out[2, t] = x[t].clamp(max=0.0).view(torch.int32)
        out[3, t] = torch.nn.functional.relu6(x[t]).view(torch.int32)
    return out


def clamped_bits_reference(x: torch.Tensor) -> torch.Tensor:
    clamped = [x.relu(), x.clamp(min=0.0), x.clamp(max=0.0), torch.nn.functional.relu6(x)]
    return torch.stack(clamped).view(torch.int32).cpu()


def zeros_and_ones() -> Args:
    values = [0.0, -0.0, 1.0, -1.0, float("inf"), float("-inf")] * 7
    return (torch.tensor(values, device=torch.get_default_device()),)


def negated_bits_reference(x: torch.Tensor) -> torch.Tensor:
    return (-x).view(torch.int32).cpu()


SIGNS: tuple[Case, ...] = (
    Case(
        "negated_bits",
        negated_bits,
        zeros_and_ones,
        negated_bits_reference,
        blocks(16),
        reduction_length=EXACT,
    ),
    Case(
        "clamped_bits",
        clamped_bits,
        zeros_and_ones,
        clamped_bits_reference,
        blocks(16),
        reduction_length=EXACT,
        # NumPy, which computes for Triton's interpreter, gives either zero.
        is_interpretable=False,
    ),
)
