"""An axis of size 1 has one element for every index, as broadcasting would have it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.host_backends import BACKENDS


@helion.kernel
def with_offsets(x: torch.Tensor, offset: torch.Tensor, form: hl.constexpr) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile_b, tile_n in hl.tile(x.size(), block_size=[1, None]):
        if form == "begin":
            value = offset[tile_b.begin, tile_n]
        elif form == "tile":
            value = offset[tile_b, tile_n].sum(0)
        else:
            value = offset[tile_b.begin + 0 * tile_n.id, tile_n]
        out[tile_b, tile_n] = x[tile_b, tile_n] + value[None, :]
    return out


@pytest.mark.parametrize("backend", [*BACKENDS, "checked"])
@pytest.mark.parametrize("form", ["begin", "tile", "sum"])
@pytest.mark.parametrize("rows", [1, 3])
def test_one_row_serves_all(rows, form, backend):
    settings: dict[str, Any] = {"check": True} if backend == "checked" else {"backend": backend}
    kernel = helion.kernel(with_offsets.fn, **settings)
    x, offset = torch.randn(3, 40), torch.randn(rows, 40)
    torch.testing.assert_close(kernel(x, offset, form), x + offset)
