"""A saved module of a kernel with runtime sizes refuses sizes that its trace does not cover."""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl


@helion.kernel(static_shapes=False)
def softmax(x):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t, :] = torch.softmax(x[t, :], dim=-1)
    return out


def test_sizes_that_were_equal_must_be_equal() -> None:
    softmax.reset()
    code = softmax.bind((torch.randn(16, 16),)).to_triton_code({"block_sizes": [4]})
    # One symbol stands for rows and columns, so other shapes would silently be read wrongly.
    check = "    require('x.size(0)', x.size(0), x.size(1))\n"
    assert check in code
    assert code.index(check) < code.rindex("    launch(")


def test_sizes_that_differed_are_free() -> None:
    softmax.reset()
    code = softmax.bind((torch.randn(5, 37),)).to_triton_code({"block_sizes": [4]})
    assert "require('x.size(0)'" not in code


@helion.kernel(static_shapes=False)
def double(x):
    out = torch.empty_like(x)
    for t, u in hl.tile(x.size()):
        out[t, u] = x[t, u] * 2
    return out


def test_sizes_that_only_bound_loops_are_free() -> None:
    double.reset()
    code = double.bind((torch.randn(16, 16),)).to_triton_code({"block_sizes": [4, 4]})
    assert "x.size(0), x.size(1))" not in code.partition("def double")[2].partition("launch(")[0]
