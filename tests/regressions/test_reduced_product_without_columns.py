"""A product with no columns, reduced along them, has a default config and gives sums of nothing."""

from __future__ import annotations

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.host_backends import BACKENDS, on_backend


@helion.kernel
def row_sums(x, y):
    out = torch.empty([x.size(0)])
    for t in hl.tile(x.size(0)):
        out[t] = (x[t, :] @ y[:, :]).sum(1)
    return out


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("static_shapes", [True, False])
def test_sums_of_no_columns_are_zero(backend: str, static_shapes: bool) -> None:
    kernel = on_backend(row_sums, backend, static_shapes=static_shapes)
    assert torch.equal(kernel(torch.ones(9, 4), torch.ones(4, 0)), torch.zeros(9))


def test_triton_code_has_a_default_config() -> None:
    bound = row_sums.bind((torch.ones(9, 4), torch.ones(4, 0)), target="cuda:90")
    assert "tl.dot" in bound.to_triton_code()
