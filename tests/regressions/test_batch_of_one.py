"""Products over a batch tile of the fixed size 1 are products of matrices.

Three-dimensional products miss the fastest matrix instructions of some devices.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.interpreted import run_function
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.traversal import walk_function
from tilesmith.ir.verifier import verify_function
from tilesmith.passes.squeeze_unit_axes import squeeze_unit_axes


@helion.kernel
def bmm(x, y, bias, out, first):
    b, m, k = x.shape
    for tb, tm, tn in hl.tile([b, m, y.size(2)], block_size=[1, None, None]):
        acc = hl.zeros([tb, tm, tn], dtype=torch.float32)
        for tk in hl.tile(k):
            acc = torch.baddbmm(acc, x[tb, tm, tk], y[tb, tk, tn])
        out[tb, tm, tn] = acc + bias[tn][None, None, :]
        first[tb, tm, :] = x[tb, tm, 0][:, :, None]


@helion.kernel
def attention(q, k, v, out):
    b, m, d = q.shape
    for tb, tm in hl.tile([b, m], block_size=[1, None]):
        peak = hl.full([tb, tm], float("-inf"))
        total = hl.zeros([tb, tm])
        acc = hl.zeros([tb, tm, d])
        for tn in hl.tile(tm.end):
            qk = torch.bmm(q[tb, tm, :], k[tb, tn, :].transpose(1, 2))
            is_seen = tm.index[None, :, None] >= tn.index[None, None, :]
            qk = torch.where(is_seen, qk, float("-inf"))
            new = torch.maximum(peak, qk.amax(-1))
            p = torch.exp(qk - new[:, :, None])
            scale = torch.exp(peak - new)
            total = total * scale + p.sum(-1)
            acc = torch.baddbmm(acc * scale[:, :, None], p, v[tb, tn, :])
            peak = new
        out[tb, tm, :] = acc / total[:, :, None]


@helion.kernel
def shared_factor(x, y, out, square):
    for tb in hl.tile(y.size(0)):
        out[tb, :, :] = hl.dot(x[:, :, :], y[tb, :, :])
        square[:, :, :] = hl.dot(x[:, :, :], x[:, :, :])


def bmm_case(m: int, k: int, n: int) -> tuple[Any, ...]:
    x, y, bias = torch.randn(3, m, k), torch.randn(3, k, n), torch.randn(n)
    expected = (x.double() @ y.double() + bias, x[:, :, :1].double())
    return bmm, (x, y, bias, torch.zeros(3, m, n), torch.zeros(3, m, 1)), expected


def attention_case() -> tuple[Any, ...]:
    q, k, v = (torch.randn(2, 37, 16) for _ in range(3))
    scores = (q.double() @ k.double().mT).masked_fill(~torch.ones(37, 37).tril().bool(), -torch.inf)
    return attention, (q, k, v, torch.zeros(2, 37, 16)), (scores.softmax(-1) @ v.double(),)


def shared_case() -> tuple[Any, ...]:
    x, y = torch.randn(1, 16, 16), torch.randn(3, 16, 16)
    expected = (x.double() @ y.double(), x.double() @ x.double())
    return shared_factor, (x, y, torch.zeros(3, 16, 16), torch.zeros(1, 16, 16)), expected


CASES = {
    "bmm": lambda: bmm_case(17, 20, 18),
    "one_column": lambda: bmm_case(17, 20, 1),
    "one_row": lambda: bmm_case(1, 20, 18),
    "one_in_the_middle": lambda: bmm_case(17, 1, 18),
    "attention": attention_case,
    "shared_factor": shared_case,
}


@pytest.mark.parametrize("size", [1, 2, 16])
@pytest.mark.parametrize("name", CASES)
def test_constant_ones_go_and_results_stay(name: str, size: int) -> None:
    kernel, args, expected = CASES[name]()
    function = kernel.bind(args).function
    units = [block.name for block in function.blocks if size == 1]
    squeezed = squeeze_unit_axes(function, units)
    verify_function(squeezed)
    products = [op.result.tile for op in walk_function(squeezed) if isinstance(op, Dot)]
    assert all(tile.rank == 2 or not tile.shape[0].is_one for tile in products)
    values = {p.value.name: a for p, a in zip(function.parameters, args)}
    run_function(squeezed, values, {block.name: size for block in function.blocks})
    for result, wanted in zip(args[-len(expected) :], expected):
        torch.testing.assert_close(result.double(), wanted, rtol=1e-4, atol=1e-4)


def test_emitted_product_has_two_dimensions() -> None:
    kernel, args, _ = attention_case()
    code = kernel.bind(args).to_triton_code({"block_sizes": [16, 16]}, target="cuda:90")
    assert "[None, :, None]" not in code
    assert "tl.trans(" in code
