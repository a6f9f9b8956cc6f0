"""What stands in lanes beyond the end goes through no conversion that changes it."""

from __future__ import annotations

import pytest
import torch

import tilesmith
import tilesmith.language as hl


@tilesmith.kernel
def least_of_rounded(x: torch.Tensor, dtype: hl.constexpr) -> torch.Tensor:
    out = torch.empty([x.size(0)], dtype=torch.float32, device=x.device)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile, :].to(dtype).to(torch.float32).amin(1)
    return out


@pytest.mark.parametrize(
    ("dtype", "is_filled"), [(torch.float8_e4m3fn, False), (torch.bfloat16, True)], ids=str
)
def test_infinity_is_no_number_of_eight_bits(dtype: torch.dtype, is_filled: bool):
    bound = least_of_rounded.bind((torch.zeros(3, 2560), dtype), target="cuda:90")
    code = bound.to_triton_code()
    assert ('other=float("inf")' in code) == is_filled
    assert ("tl.where(" in code.partition("def _least_of_rounded(")[2]) != is_filled
