# type: ignore
"""With dynamic shapes, tensors whose strides are of one kind share a kernel."""

from __future__ import annotations

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl

BASE = torch.arange(2000.0).reshape(40, 50)
KINDS = {
    "rows": [torch.rand(4, 6), torch.rand(7, 9), BASE[:8, :6], BASE[::2, :7], BASE[3:, 1:]],
    "padded rows": [BASE[:5, :9], torch.rand(5, 16)[:, :6]],
    "every other column": [BASE[:, ::2], BASE[:7, ::3]],
    "transposed": [torch.rand(6, 4).t(), BASE.t(), BASE[:5, :3].t()],
    "one row for all": [torch.rand(1, 6).expand(5, 6), torch.rand(9).expand(3, 9)],
    "one column for all": [torch.rand(5, 1).expand(5, 4), torch.rand(7, 1).expand(7, 9)],
}


@helion.kernel(static_shapes=False)
def incremented(x):
    out = torch.empty(x.shape)
    for tile_m, tile_n in hl.tile(x.shape):
        out[tile_m, tile_n] = x[tile_m, tile_n] + 1
    return out


@helion.kernel(static_shapes=False)
def summed(x):
    out = torch.empty(x.size(0))
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile, :].sum(-1)
    return out


@pytest.mark.parametrize("kind", KINDS)
def test_strides_of_one_kind_share_a_kernel(kind, traces) -> None:
    for kernel, expected in [
        (incremented, lambda x: x.double() + 1),
        (summed, lambda x: x.double().sum(-1)),
    ]:
        kernel.reset()
        traces.clear()
        for x in KINDS[kind]:
            torch.testing.assert_close(kernel(x).double(), expected(x), rtol=1e-6, atol=1e-6)
        assert len(traces) == 1


def test_rows_share_a_kernel_with_padded_rows(traces) -> None:
    incremented.reset()
    for x in (*KINDS["rows"], *KINDS["padded rows"]):
        assert torch.equal(incremented(x), x + 1)
    assert len(traces) == 1
