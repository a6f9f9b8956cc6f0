"""A coordinate of a flattened tile that is stored where it points to is still computed."""

from __future__ import annotations

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.host_backends import BACKENDS, on_backend


@helion.kernel
def row_numbers(out: torch.Tensor) -> torch.Tensor:
    for t, u in hl.tile(out.size()):
        out[t, u] = t.index[:, None]
    return out


CONFIG = helion.Config(block_sizes=[4, 2], flatten_loops=[True])


def test_triton_code_has_it() -> None:
    out = torch.zeros(15, 3, dtype=torch.int32)
    assert "// 3" in row_numbers.bind((out,)).to_triton_code(CONFIG, target="cuda:90")


@pytest.mark.parametrize("backend", BACKENDS)
def test_it_is_right(backend: str) -> None:
    out = on_backend(row_numbers, backend)(torch.zeros(15, 3, dtype=torch.int32))
    assert torch.equal(out, torch.arange(15, dtype=torch.int32)[:, None].expand(15, 3))
