"""``torch.clamp`` with bounds that are runtime arguments of the kernel."""

from __future__ import annotations

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl


@helion.kernel
def clamped(x, low, high):
    out = torch.empty(x.shape, dtype=torch.float64, device=x.device)
    for t in hl.tile(x.size(0)):
        out[t] = torch.clamp(x[t], min=low, max=high)
    return out


@pytest.mark.parametrize("bounds", [(-0.5, 0.25), (-1, 1), (-1, 0.25), (0, 0)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32], ids=str)
def test_bounds_promote_as_in_torch(dtype: torch.dtype, bounds: tuple[float, float]) -> None:
    x = (torch.randn(13) * 3).to(dtype)
    result = clamped.bind((x, *bounds)).compile_config({"block_sizes": [4]})(x, *bounds)
    expected = torch.clamp(x, *bounds).double()
    assert torch.equal(result, expected)
