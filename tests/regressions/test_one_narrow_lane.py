"""A last vector of one 16-bit or 8-bit element must not write its neighbours in memory.

LLVM 22 stores four bytes for a masked store of one narrow lane when it knows the mask.
"""

from __future__ import annotations

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl


@helion.kernel(backend="cpu")
def copy_rows(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    for tile_m in hl.tile(x.size(0)):
        out[tile_m, :] = x[tile_m, :].to(out.dtype)
    return out


@helion.kernel(backend="cpu")
def sum_rows(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    for tile_n in hl.tile(x.size(1)):
        out[tile_n] = x[:, tile_n].sum(0).to(out.dtype)
    return out


DTYPES = (torch.bfloat16, torch.float16, torch.int8, torch.bool)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("width", [1, 2, 8, 9, 16, 17, 33, 65])
def test_columns_beside_the_output_stay(width: int, dtype: torch.dtype) -> None:
    x = (torch.arange(3 * width).reshape(3, width) % 5).float()
    memory = torch.ones(3, width + 4).to(dtype)
    before = memory.clone()
    copy_rows(x, memory[:, :width])
    assert torch.equal(memory[:, :width], x.to(dtype))
    assert torch.equal(memory[:, width:], before[:, width:])


@pytest.mark.parametrize("dtype", DTYPES[:3], ids=str)
@pytest.mark.parametrize("width", [1, 9, 17, 33])
def test_elements_behind_sums_of_columns_stay(width: int, dtype: torch.dtype) -> None:
    x = (torch.arange(3 * width).reshape(3, width) % 5).float()
    memory = torch.ones(width + 4).to(dtype)
    sum_rows(x, memory[:width])
    assert torch.equal(memory[:width], x.sum(0).to(dtype))
    assert torch.equal(memory[width:], torch.ones(4).to(dtype))
