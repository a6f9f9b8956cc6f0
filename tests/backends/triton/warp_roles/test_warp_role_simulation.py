"""Emitted modules with warp roles, run on the CPU in several orders, against fp64."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tilesmith
import tilesmith.language as hl
from examples.attention import LOG2_E, online_softmax_step
from examples.matmul import bias_relu, matmul
from examples.matmul import reference as matmul_reference
from tests.backends.triton.warp_roles.gluon_simulator import Simulation
from tests.backends.triton.warp_roles.warp_role_modules import emit
from tests.device.warp_role_cases import KERNELS, Case, make_args
from tilesmith.numerics.compare import check_against

KINDS = ("plain", "causal", "bias", "lse")
PIDS = ("flat", "persistent_interleaved")
FEW = [
    ("plain", 65, 16, 2, "flat"),
    ("plain", 129, 16, 3, "persistent_interleaved"),
    ("causal", 129, 16, 1, "flat"),
    ("causal", 257, 16, 2, "persistent_interleaved"),
    ("bias", 65, 16, 2, "persistent_interleaved"),
    ("lse", 63, 64, 2, "flat"),
]
MANY = [
    (kind, n, d, groups, pid)
    for kind in KINDS
    for n in (63, 64, 65, 127, 129, 257)
    for d in (16, 64)
    for groups in (1, 2, 3)
    for pid in PIDS
]


def config(groups, pid, *, columns=64, stages=0) -> dict[str, Any]:
    return {
        "block_sizes": [1, 64 * groups, columns],
        "num_warps": 4 * groups,
        "num_stages": stages or (3 if groups == 3 else 2),
        "pid_type": pid,
    }


def check(found, exact, length):
    found, exact = (item if isinstance(item, tuple) else (item,) for item in (found, exact))
    for result, wanted in zip(found, exact):
        check_against(result, wanted, reduction_length=length, intermediate=torch.bfloat16)


def simulate(case, seed=0, text=None, **options):
    """Run a case's emitted module and compare."""
    kernel, exact = KERNELS[case.kind]
    args = make_args(case, "cpu")
    text = emit(kernel, args, **options) if text is None else text
    run = Simulation(text, seed=seed)[kernel.fn.__name__]
    check(run(*args), exact(*args), case.length)


@pytest.mark.parametrize(("kind", "n", "d", "groups", "pid"), FEW)
def test_attention(kind, n, d, groups, pid):
    simulate(Case(kind, n, d), seed=n, **config(groups, pid))


def test_another_type_and_the_narrowest_heads():
    simulate(Case("causal", 129, 16, dtype=torch.float16), **config(2, "flat"))
    simulate(Case("plain", 65, 8), **config(1, "flat"))


def test_heads_that_share_keys_and_rows_that_see_none():
    options: dict[str, Any] = {**config(2, "persistent_interleaved"), "block_sizes": [128, 64]}
    simulate(Case("shared", 129, 16), **options)


@pytest.mark.full
@pytest.mark.parametrize(("kind", "n", "d", "groups", "pid"), MANY)
def test_attention_at_more_sizes(kind, n, d, groups, pid):
    for seed in range(3):
        simulate(Case(kind, n, d), seed=seed, **config(groups, pid))


@pytest.mark.parametrize(
    ("kind", "layout", "n"), [("plain", "transposed", 136), ("lse", "strided", 65)]
)
def test_views(kind, layout, n):
    simulate(Case(kind, n, 16, layout), **config(2, "flat"))


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("layout", "n"), [("transposed", 264), ("strided", 129), ("sliced", 65)])
@pytest.mark.parametrize("stages", [1, 2, 5])
def test_more_views(kind, layout, n, stages):
    simulate(Case(kind, n, 64, layout), **config(2, "flat", stages=stages, columns=32))


@pytest.mark.parametrize(
    ("size", "blocks", "warps", "stages", "pid"),
    [
        ((128, 64, 64), [128, 64, 32], 8, 1, "flat"),
        ((200, 72, 136), [64, 32, 16], 4, 2, "persistent_interleaved"),
    ],
)
def test_product_with_an_epilogue(size, blocks, warps, stages, pid):
    m, k, n = size
    torch.manual_seed(0)
    x, y, bias = (torch.randn(shape).bfloat16() for shape in ((m, k), (k, n), (n,)))
    finish = bias_relu(bias)
    options = {"num_warps": warps, "num_stages": stages, "pid_type": pid}
    text = emit(matmul, (x, y, finish), block_sizes=blocks, **options)
    found = Simulation(text)["matmul"](x, y, finish)
    check_against(found, matmul_reference(x, y, finish), reduction_length=k)


@tilesmith.kernel(static_shapes=True)
def windowed(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, window: hl.constexpr
) -> torch.Tensor:
    m, head_dim = q.size(1), hl.specialize(q.size(2))
    out = torch.empty_like(q)
    for tile_b, tile_m in hl.tile([q.size(0), m]):
        peak = hl.full([tile_b, tile_m], -1e30, dtype=torch.float32)
        total = hl.zeros([tile_b, tile_m], dtype=torch.float32)
        acc = hl.zeros([tile_b, tile_m, head_dim], dtype=torch.float32)
        queries = q[tile_b, tile_m, :]
        for tile_n in hl.tile(0, tile_m.end):
            scores = torch.bmm(queries, k[tile_b, tile_n, :].transpose(1, 2), torch.float32)
            rows, columns = tile_m.index[:, None], tile_n.index[None, :]
            seen = (rows >= columns) & (rows - columns < window)
            scores = torch.where(seen[None, :, :], scores * LOG2_E, float("-inf"))
            state = peak, total, acc
            values = v[tile_b, tile_n, :]
            peak, total, acc = online_softmax_step(state, scores, values)
        out[tile_b, tile_m, :] = (acc / total[:, :, None]).to(out.dtype)
    return out


def windowed_reference(q, k, v, window):
    scores = q.double() @ k.double().mT
    seen = torch.ones(scores.shape[-2:]).tril().triu(1 - window).bool()
    return torch.softmax(scores.masked_fill(~seen, float("-inf")), -1) @ v.double()


@pytest.mark.parametrize("window", [1, 40, 100])
def test_sliding_window(window):
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 257, 16).bfloat16() / 2 for _ in range(3))
    text = emit(windowed, (q, k, v, window), **config(2, "flat", columns=32))
    assert "full_from" in text
    found = Simulation(text)["windowed"](q, k, v, window)
    check(found, windowed_reference(q, k, v, window), 257)


def test_order_does_not_matter():
    case, kernel = Case("causal", 129, 16), KERNELS["causal"][0]
    args = make_args(case, "cpu")
    text = emit(kernel, args, **config(2, "persistent_interleaved"))
    first, *others = (Simulation(text, seed=seed)["causal_attention"](*args) for seed in range(3))
    assert all(torch.equal(first, other) for other in others)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("IS_MASKED:\n        scores =", "False:\n        scores ="),
        ("mul = acc * exp2[:, None]", "mul = acc"),
        ("[offset_b, offset_n, 0]", "[offset_b, offset_m, 0]"),
        ("fence_async_shared()\n", "\n"),
        ("_wait(late_full, step + turn - 1, STAGES)", "pass"),
    ],
)
def test_mistakes_are_noticed(old, new):
    case = Case("causal", 129, 64)
    text = emit(KERNELS["causal"][0], make_args(case, "cpu"), **config(2, "flat"))
    wrong = text.replace(old, new)
    assert wrong != text
    assert any(is_noticed(case, seed, wrong) for seed in range(8))


def is_noticed(case, seed, text):
    try:
        simulate(case, seed, text)
    except AssertionError:
        return True
    return False
