"""A registered block size that no loop uses still has its place in the config."""

from __future__ import annotations

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.host_backends import BACKENDS, on_backend


@helion.kernel
def unused(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    hl.register_block_size(64)
    for t in hl.tile(x.size(0)):
        out[t] = x[t] + 1
    return out


@helion.kernel
def unused_alone(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    hl.register_block_size(64)
    for t in hl.tile(x.size(0), block_size=8):
        out[t] = x[t] + 1
    return out


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("kernel", "sizes"), [(unused, [16, 4]), (unused_alone, [16])])
def test_it_counts_among_the_block_sizes(kernel: object, sizes: list[int], backend: str) -> None:
    x = torch.randn(21)
    bound = on_backend(kernel, backend).bind((x,))
    assert torch.equal(bound.compile_config(helion.Config(block_sizes=sizes))(x), x + 1)


@pytest.mark.parametrize("kernel", [unused, unused_alone])
def test_triton_code_can_be_written(kernel: helion.Kernel) -> None:
    assert "@triton.jit" in kernel.bind((torch.randn(21),), target="cuda:90").to_triton_code()
