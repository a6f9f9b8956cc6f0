"""The gated unit of a feed-forward layer: `gelu(gate) * up`, with the tanh approximation of gelu.

The activation is an ordinary Python function on tiles. Half of one plus a tanh is the sigmoid of
twice its argument, which does not cancel far below zero, and costs no more.
"""

from __future__ import annotations

import math

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against

TWICE_TANH_SCALE = 2 * math.sqrt(2 / math.pi)


def gelu(x: torch.Tensor) -> torch.Tensor:
    """`x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))) / 2`."""
    return x * torch.sigmoid(TWICE_TANH_SCALE * (x + 0.044715 * x * x * x))


@helion.kernel
def geglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    assert gate.shape == up.shape, "one gate per value"
    out = torch.empty_like(gate, dtype=torch.promote_types(gate.dtype, up.dtype))
    for tile in hl.tile(gate.size()):
        # In fp32 whatever the type of the tensors, rounded once.
        out[tile] = gelu(gate[tile].to(torch.float32)) * up[tile].to(torch.float32)
    return out


def reference(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.gelu(gate.double(), approximate="tanh") * up.double()


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for dtype in (torch.float32, torch.bfloat16):
        gate, up = (torch.randn(512, 1000, device=device, dtype=dtype) for _ in range(2))
        # Results vanish like exp(-x * x): there only their absolute error is small.
        report = check_against(geglu(gate, up), reference(gate, up), reduction_length=2)
        print(f"geglu: {dtype}, {report.max_ulp:.2f} ulp")


if __name__ == "__main__":
    main()
