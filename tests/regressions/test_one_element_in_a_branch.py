"""A tile of one element that a branch changes is one variable of one shape in Triton code."""

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
