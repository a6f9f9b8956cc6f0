"""Element types of products, as device code sees them while it is traced."""

from __future__ import annotations

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.conformance.case import randn


@helion.kernel
def products(x: torch.Tensor, y: torch.Tensor, note) -> torch.Tensor:
    out = torch.zeros([x.size(0), y.size(1)], dtype=torch.float32, device=x.device)
    for t, u in hl.tile(out.size()):
        note(
            hl.dot(x[t, :], y[:, u]),
            hl.dot(x[t, :], y[:, u], out_dtype=torch.float16),
            x[t, :] @ y[:, u],
            torch.addmm(hl.zeros([t, u]), x[t, :], y[:, u]),
            torch.mm(x[t, :], y[:, u], torch.float32),
        )
        out[t, u] = hl.dot(x[t, :], y[:, u])
    return out


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_result_types(dtype: torch.dtype) -> None:
    seen: list[torch.dtype] = []

    def note(*values):
        seen.extend(value.dtype for value in values)

    products(randn(16, 16, dtype=dtype), randn(16, 16, dtype=dtype), note)
    assert seen == [torch.float32, torch.float16, dtype, torch.float32, torch.float32]
