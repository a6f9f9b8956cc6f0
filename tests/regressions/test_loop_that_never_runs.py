"""A ``while`` that is false at once leaves no loop behind: Triton 3.6 cannot compile one."""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.host_backends import BACKENDS, on_backend


@helion.kernel
def counted(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        value = x[t]
        count = hl.full([], 0, dtype=torch.int32)
        while count < 0:
            value = value * 2
            count += 1
        out[t] = value + count
    return out


@helion.kernel
def counted_twice(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        value = x[t]
        count = hl.full([], 0, dtype=torch.int32)
        while count < 2:
            value = value * 2
            count += 1
        out[t] = value + count
    return out


def test_idle_loop_is_gone() -> None:
    code = counted.bind((torch.randn(7),)).to_triton_code(target="cuda:90")
    assert "while" not in code


def test_loop_that_runs_stays() -> None:
    code = counted_twice.bind((torch.randn(7),)).to_triton_code(target="cuda:90")
    assert "while" in code


def test_results_are_eager_ones() -> None:
    x = torch.randn(7)
    for backend in BACKENDS:
        assert torch.equal(on_backend(counted, backend)(x), x)
        assert torch.equal(on_backend(counted_twice, backend)(x), x * 4 + 2)
