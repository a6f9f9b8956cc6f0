"""What fp8 tensor cores make of a sum is within the budgets of fp8 products."""

from __future__ import annotations

import torch

from examples.ports import fp8_blockwise
from tests.examples.ports.ports import PORTS
from tests.fp8_units import fp8_product


def test_blocks_with_scales_of_their_own() -> None:
    port = next(port for port in PORTS if port.name == "fp8_blockwise")
    for size in port.sizes:
        args = port.make_inputs(size, fp8_blockwise.FP8, "cpu")
        port.check(_blockwise(*args), args, size, fp8_blockwise.FP8)


def _blockwise(
    x: torch.Tensor, w: torch.Tensor, x_scales: torch.Tensor, w_scales: torch.Tensor
) -> torch.Tensor:
    total = torch.zeros(x.size(0), w.size(0))
    for block in range(x_scales.size(1)):
        part = slice(block * fp8_blockwise.BLOCK, (block + 1) * fp8_blockwise.BLOCK)
        product = fp8_product(x.float()[:, part], w.float()[:, part].T)
        columns = w_scales[torch.arange(w.size(0)) // fp8_blockwise.BLOCK, block]
        total += product * x_scales[:, block, None] * columns[None, :]
    return total.bfloat16()
