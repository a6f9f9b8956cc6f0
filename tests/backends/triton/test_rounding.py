"""Fused multiply-adds are allowed where nobody can see them."""

from __future__ import annotations

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl


@helion.kernel
def scale_and_shift(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * y[tile] + x[tile]
    return out


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_half_and_double_arithmetic_is_not_fused(dtype: torch.dtype):
    x = torch.empty(100, dtype=dtype)
    artifact = scale_and_shift.bind((x, x), target="cuda:90").to_artifact()
    assert artifact.options["enable_fp_fusion"] is False
    assert "enable_fp_fusion=False" in artifact.source


def test_fp32_arithmetic_may_be_fused():
    x = torch.empty(100)
    artifact = scale_and_shift.bind((x, x), target="cuda:90").to_artifact()
    assert artifact.options.get("enable_fp_fusion", True)


def test_fast_math_may_fuse_everything():
    fast = helion.kernel(scale_and_shift.fn, fast_math=True)
    x = torch.empty(100, dtype=torch.float16)
    assert fast.bind((x, x), target="cuda:90").to_artifact().options.get("enable_fp_fusion", True)
