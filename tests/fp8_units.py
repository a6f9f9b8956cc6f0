"""Products as Hopper's fp8 tensor cores make them, on the CPU.

A step adds 32 exact products to the sum. All are cut off 13 bits below the largest of them, and so
is the result.
"""

from __future__ import annotations

import torch

STEP = 32
FRACTION_BITS = 13


def fp8_product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """`x` `[m, k]` times `y` `[k, n]`, in fp32."""
    total = torch.zeros(x.size(0), y.size(1), dtype=torch.float64)
    for begin in range(0, x.size(1), STEP):
        part = slice(begin, begin + STEP)
        products = x[:, part, None].double() * y[None, part, :].double()
        terms = torch.cat([products, total[:, None, :]], 1)
        largest = terms.abs().amax(1)
        total = _cut(_cut(terms, largest[:, None, :]).sum(1), None)
    return total.float()


def _cut(values: torch.Tensor, largest: torch.Tensor | None) -> torch.Tensor:
    """Without the bits too far below the leading one of the largest (of each, for None)."""
    exponent = torch.frexp(values.abs() if largest is None else largest).exponent - 1
    unit = torch.exp2((exponent - FRACTION_BITS).double())
    return torch.trunc(values / unit) * unit
