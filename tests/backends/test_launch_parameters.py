"""What launchers are told of tensors."""

from __future__ import annotations

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl


@helion.kernel(config=helion.Config(block_sizes=[4]))
def total(x):
    out = torch.empty([x.size(0)], dtype=x.dtype, device=x.device)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile, :].sum(-1)
    return out


def may_be_negated(x: torch.Tensor) -> bool:
    artifact = total.bind((x,)).to_artifact()
    (found,) = [p.may_be_negated for p in artifact.parameters if p.source == "x"]
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(4, 6), (4, 1), (1, 6), (1, 1), (5, 3)])
def test_parts_of_complex_numbers_may_be_negated(shape, dtype):
    # The same memory without the flag: kernels are not bound to negated views.
    part = torch.zeros(shape, dtype=dtype.to_complex()).imag
    for view in (part, part.t(), part[:, :1], part[::2], part.unsqueeze(0).squeeze(0)):
        assert may_be_negated(view)


def test_packed_tensors_and_other_types_are_never_negated():
    assert not may_be_negated(torch.zeros(4, 6))
    assert not may_be_negated(torch.zeros(6, 4).t())
    for dtype in (torch.bfloat16, torch.int32):
        assert not may_be_negated(torch.zeros(4, 6, dtype=dtype)[:, ::2])


@pytest.mark.parametrize("shape", [(4, 6), (1, 1)])
def test_calls_refuse_negated_views(shape):
    part = torch.ones(shape, dtype=torch.complex64).mul(2j).conj().imag
    for _ in range(2):
        with pytest.raises(helion.exc.UnsupportedArgumentType, match="resolve_neg"):
            total(part)
        assert torch.equal(total(part.resolve_neg()), part.resolve_neg().sum(-1))
