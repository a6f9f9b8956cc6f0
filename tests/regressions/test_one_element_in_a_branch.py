"""A tile that a branch changes is one variable of one shape in Triton code.

That holds where axes have one element, and where a tensor has stride 0.
"""

from __future__ import annotations

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.host_backends import BACKENDS, on_backend
from tilesmith.backends.triton.build import compile_artifact


@helion.kernel
def shifted(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    for i in hl.grid(x.size(1)):
        v = x[:, i]
        if i < 1:
            v = v - 1
        out[i, :] = v
    return out


def make_args() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.arange(3.0).reshape(1, 3), torch.zeros(3, 1)


def test_it_compiles_for_a_gpu() -> None:
    bound = shifted.bind(make_args(), target="cuda:90")
    assert compile_artifact(bound.to_artifact(bound.default_config())).binary


@pytest.mark.parametrize("backend", BACKENDS)
def test_it_computes_the_same(backend: str) -> None:
    found = on_backend(shifted, backend)(*make_args())
    assert found.flatten().tolist() == [-1.0, 1.0, 2.0]


@helion.kernel
def lowered(x: torch.Tensor, out: torch.Tensor, limit: int) -> torch.Tensor:
    for t, u in hl.tile(x.size()):
        v = x[t, u]
        if limit < 2:
            out[t, u] = v + 1
        else:
            v = v - 1
        out[t, u] = v
    return out


def test_an_expanded_tensor_compiles_for_a_gpu() -> None:
    args = (torch.zeros(64).expand(4, 64), torch.zeros(4, 64), 2)
    bound = lowered.bind(args, target="cuda:90")
    assert compile_artifact(bound.to_artifact(helion.Config(block_sizes=[2, 64]))).binary
