"""``flip`` and ``roll`` along whole axes whose size is a runtime value."""

from __future__ import annotations

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.host_backends import BACKENDS, on_backend


@helion.kernel(static_shapes=False)
def moved(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty([4, *x.shape])
    for t in hl.tile(x.size(0)):
        out[0, t, :] = x[t, :].flip(1)
        out[1, t, :] = x[t, :].roll(2, 1)
        out[2, t, :] = torch.roll(x[t, :], -3, 1)
        out[3, t, :] = x[t, :].roll(40, 1)
    return out


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_kernel_moves_rows_of_all_sizes(backend: str) -> None:
    kernel = on_backend(moved, backend)
    for n in (17, 16, 5, 33):
        x = torch.randn(3, n)
        wanted = torch.stack([x.flip(1), x.roll(2, 1), x.roll(-3, 1), x.roll(40, 1)])
        assert torch.equal(kernel(x), wanted)


def test_code_for_gpus_is_made() -> None:
    assert "tl.gather" in moved.bind((torch.ones(3, 5),)).to_triton_code(target="cuda:90")
