"""Who does what in a kernel with warp roles, and why others have no such form."""

from __future__ import annotations

import linecache

import pytest
import torch

import tilesmith
import tilesmith.language as hl
from examples.attention import attention, causal_attention
from examples.matmul import matmul
from tilesmith.backends.triton.warp_roles.plan import Refusal, RolePlan, plan_roles

HALF = torch.float16


def tensors(*sizes, dtype=HALF):
    return [torch.empty(size, dtype=dtype, device="meta") for size in sizes]


def plan_of(kernel, args) -> RolePlan | Refusal:
    spec = kernel.bind(kernel.normalize_args(*args), target="cuda:90").config_spec
    return plan_roles(spec.kernel.outline.function)


@tilesmith.kernel(static_shapes=True)
def two_grids(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out, copy = torch.empty_like(x), torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        copy[tile, :] = x[tile, :]
    for tile_m, tile_n in hl.tile([x.size(0), y.size(1)]):  # refused
        acc = hl.zeros([tile_m, tile_n])
        for tile_k in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, tile_n])
        out[tile_m, tile_n] = acc.to(out.dtype)
    return out


@tilesmith.kernel(static_shapes=True)
def no_loop(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0), y.size(1)], dtype=x.dtype, device=x.device)
    for tile_m, tile_n in hl.tile([x.size(0), y.size(1)]):  # refused
        out[tile_m, tile_n] = torch.mm(x[tile_m, :], y[:, tile_n])
    return out


@tilesmith.kernel(static_shapes=True)
def no_product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0)], dtype=torch.float32, device=x.device)
    for tile_m in hl.tile(x.size(0)):
        acc = hl.zeros([tile_m])
        for tile_k in hl.tile(x.size(1)):  # refused
            acc = acc + x[tile_m, tile_k].to(torch.float32).sum(-1)
        out[tile_m] = acc
    return out


@tilesmith.kernel(static_shapes=True)
def no_sum(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0)], dtype=torch.float32, device=x.device)
    for tile_m in hl.tile(x.size(0)):
        peak = hl.full([tile_m], float("-inf"))
        for tile_n in hl.tile(y.size(1)):
            product = hl.dot(x[tile_m, :], y[:, tile_n])  # refused
            peak = torch.maximum(peak, product.amax(-1))
        out[tile_m] = peak
    return out


@tilesmith.kernel(static_shapes=True)
def computed_right(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0), y.size(1)], dtype=x.dtype, device=x.device)
    for tile_m, tile_n in hl.tile([x.size(0), y.size(1)]):
        acc = hl.zeros([tile_m, tile_n])
        for tile_k in hl.tile(x.size(1)):
            doubled = y[tile_k, tile_n] * 2
            acc = torch.addmm(acc, x[tile_m, tile_k], doubled)  # refused
        out[tile_m, tile_n] = acc.to(out.dtype)
    return out


@tilesmith.kernel(static_shapes=True)
def computed_early(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0), y.size(1)], dtype=x.dtype, device=x.device)
    for tile_m in hl.tile(x.size(0)):
        acc = hl.zeros([tile_m, y.size(1)])
        for tile_k in hl.tile(x.size(1)):
            doubled = x[tile_m, tile_k] * 2
            product = hl.dot(doubled, y[tile_k, :])  # refused
            acc = torch.addmm(acc + product.exp(), x[tile_m, tile_k], y[tile_k, :])
        out[tile_m, :] = acc.to(out.dtype)
    return out


@tilesmith.kernel(static_shapes=True)
def read_sum(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0), y.size(1)], dtype=x.dtype, device=x.device)
    for tile_m, tile_n in hl.tile([x.size(0), y.size(1)]):
        acc = hl.zeros([tile_m, tile_n])
        most = hl.zeros([tile_m])
        for tile_k in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, tile_n])  # refused
            most = torch.maximum(most, acc.amax(-1))
        out[tile_m, tile_n] = (acc * most[:, None]).to(out.dtype)
    return out


@tilesmith.kernel(static_shapes=True)
def reduced_sum(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0), y.size(1)], dtype=x.dtype, device=x.device)
    for tile_m, tile_n in hl.tile([x.size(0), y.size(1)]):
        acc = hl.zeros([tile_m, tile_n])
        most = hl.zeros([tile_m])
        for tile_k in hl.tile(x.size(1)):
            most = most + acc.amax(-1)  # refused
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, tile_n])
        out[tile_m, tile_n] = (acc * most[:, None]).to(out.dtype)
    return out


@tilesmith.kernel(static_shapes=True)
def summed_rows(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0), y.size(1)], dtype=x.dtype, device=x.device)
    for tile_m, tile_n in hl.tile([x.size(0), y.size(1)]):
        acc = hl.zeros([tile_m, tile_n])
        for tile_k in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, tile_n])
        out[tile_m, tile_n] = (acc - acc.amax(0)[None, :]).to(out.dtype)  # refused
    return out


@tilesmith.kernel(static_shapes=True)
def two_loops(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0), y.size(1)], dtype=x.dtype, device=x.device)
    for tile_m, tile_n in hl.tile([x.size(0), y.size(1)]):
        acc = hl.zeros([tile_m, tile_n])
        for tile_k in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, tile_n])
        for tile_k in hl.tile(x.size(1)):  # refused
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, tile_n])
        out[tile_m, tile_n] = acc.to(out.dtype)
    return out


@tilesmith.kernel(static_shapes=True)
def ordered_loop(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0), y.size(1)], dtype=x.dtype, device=x.device)
    for tile_m, tile_n in hl.tile([x.size(0), y.size(1)]):
        acc = hl.zeros([tile_m, tile_n])
        for _ in hl.grid(4):  # refused
            acc = acc * 2
        out[tile_m, tile_n] = torch.addmm(acc, x[tile_m, :], y[:, tile_n]).to(out.dtype)
    return out


@tilesmith.kernel(static_shapes=True)
def scanned(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0), y.size(1)], dtype=x.dtype, device=x.device)
    for tile_m, tile_n in hl.tile([x.size(0), y.size(1)]):
        acc = hl.zeros([tile_m, tile_n])
        for tile_k in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, tile_n])
        out[tile_m, tile_n] = torch.cumsum(acc, 1).to(out.dtype)  # refused
    return out


@tilesmith.kernel(static_shapes=True)
def product_outside(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0), y.size(1)], dtype=x.dtype, device=x.device)
    for tile_m, tile_n in hl.tile([x.size(0), y.size(1)]):
        acc = hl.zeros([tile_m, tile_n])
        for tile_k in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, tile_n])
        acc = torch.addmm(acc, x[tile_m, :], y[:, tile_n])  # refused
        out[tile_m, tile_n] = acc.to(out.dtype)
    return out


@tilesmith.kernel(static_shapes=True)
def stores_inside(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0), y.size(1)], dtype=x.dtype, device=x.device)
    copy = torch.empty_like(x)
    for tile_m, tile_n in hl.tile([x.size(0), y.size(1)]):
        acc = hl.zeros([tile_m, tile_n])
        for tile_k in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, tile_n])
            copy[tile_m, tile_k] = x[tile_m, tile_k]  # refused
        out[tile_m, tile_n] = acc.to(out.dtype)
    return out


@tilesmith.kernel(static_shapes=True)
def both_ways(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0), y.size(1)], dtype=x.dtype, device=x.device)
    turned = torch.empty([y.size(1), x.size(0)], dtype=x.dtype, device=x.device)
    for tile_m, tile_n in hl.tile([x.size(0), y.size(1)]):
        acc = hl.zeros([tile_m, tile_n])
        other = hl.zeros([tile_n, tile_m])
        for tile_k in hl.tile(x.size(1)):  # refused
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, tile_n])
            other = torch.addmm(other, y[tile_k, tile_n].T, x[tile_m, tile_k].T)
        out[tile_m, tile_n] = acc.to(out.dtype)
        turned[tile_n, tile_m] = other.to(out.dtype)
    return out


@tilesmith.kernel(static_shapes=True)
def late_weights(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0), 64], dtype=x.dtype, device=x.device)
    for tile_m in hl.tile(x.size(0)):
        acc = hl.zeros([tile_m, 64])
        weights = hl.zeros([tile_m, 64], dtype=x.dtype)
        for tile_n in hl.tile(y.size(0)):
            product = hl.dot(x[tile_m, :], y[tile_n, :].T).sum(-1)
            acc = torch.addmm(acc, weights, y[0:64, 0:64])  # refused
            weights = (weights + product[:, None]).to(x.dtype)
        out[tile_m, :] = acc.to(out.dtype)
    return out


@tilesmith.kernel(static_shapes=True)
def computed_left(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0), y.size(1)], dtype=x.dtype, device=x.device)
    for tile_m, tile_n in hl.tile([x.size(0), y.size(1)]):
        acc = hl.zeros([tile_m, tile_n])
        for tile_k in hl.tile(x.size(1)):
            doubled = x[tile_m, tile_k] * 2
            acc = torch.addmm(acc, doubled, y[tile_k, tile_n])  # refused
        out[tile_m, tile_n] = acc.to(out.dtype)
    return out


@tilesmith.kernel(static_shapes=True)
def late_scale(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile_m in hl.tile(x.size(0)):
        acc = hl.zeros([tile_m, x.size(1)])
        scale = hl.full([tile_m], 1.0)
        for tile_n in hl.tile(y.size(0)):  # refused
            scores = hl.dot(x[tile_m, :], y[tile_n, :].T)
            acc = torch.addmm(acc * scale[:, None], scores.to(x.dtype), y[tile_n, :])
            scale = scores.amax(-1)
        out[tile_m, :] = acc.to(out.dtype)
    return out


REASONS = {
    two_grids: "it has more than one top-level loop",
    no_loop: "it has not exactly one loop inside its tiles",
    no_product: "its loop has no product",
    no_sum: "no product of its loop adds to an accumulator",
    computed_right: "the right operand of a product is computed, not loaded",
    computed_early: "a product of computed tiles that is no sum over the loop",
    read_sum: "a sum over the loop that is also read inside of it",
    reduced_sum: "an accumulator is read while it is summed up",
    summed_rows: "rows that groups would share are reduced",
    two_loops: "it has not exactly one loop inside its tiles",
    ordered_loop: "its loop does not run over the tiles of one axis in any order",
    scanned: "warps with roles cannot run scan yet",
    product_outside: "a product stands outside of the loop",
    stores_inside: "it stores inside of the loop",
    both_ways: "its products have no rows of one tile in common",
    late_weights: "a sum multiplies what the turn before has left",
    computed_left: "the left operand of a sum is loaded, then computed",
    late_scale: "an accumulator is scaled by what the turn before has left",
}


@pytest.mark.parametrize("kernel", REASONS, ids=lambda kernel: kernel.fn.__name__)
def test_refusals_name_a_line(kernel):
    found = plan_of(kernel, tensors((128, 128), (128, 128)))
    assert isinstance(found, Refusal)
    assert found.reason == REASONS[kernel]
    assert "# refused" in linecache.getline(__file__, found.loc.line)


@pytest.mark.parametrize(("rows", "expected"), [(1, "tile_m has one element"), (2, "")])
def test_products_of_one_row_are_refused(rows: int, expected: str):
    """The axis is left out of the code, and groups would have no rows to share."""
    args = tensors((rows, 64), (64, 8))
    spec = matmul.bind(matmul.normalize_args(*args), target="cuda:90").config_spec
    missing = spec.rules.missing_ways(spec.kernel)
    assert missing.get("warp_roles", "").startswith(expected)
    assert bool(missing) == bool(expected)


def test_words_are_refused():
    found = plan_of(matmul, tensors((128, 128), (128, 128), dtype=torch.float32))
    assert isinstance(found, Refusal)
    assert found.reason == "a product of f32 and f32 in f32"


def test_a_product_alone_is_a_sum():
    plan = plan_of(matmul, tensors((128, 128), (128, 128)))
    assert isinstance(plan, RolePlan)
    assert (len(plan.early), len(plan.late), len(plan.kept), len(plan.ring)) == (0, 1, 0, 2)
    assert not plan.long_last


@pytest.mark.parametrize("kernel", [attention, causal_attention], ids=["plain", "causal"])
def test_attention_is_rotated(kernel):
    plan = plan_of(kernel, tensors((2, 256, 64), (2, 256, 64), (2, 256, 64)))
    assert isinstance(plan, RolePlan)
    assert [load.tensor.name for load in plan.kept] == ["q"]
    assert [load.tensor.name for load in plan.ring] == ["k", "v"]
    assert [plan.turns_read(load) for load in plan.ring] == ["early", "late"]
    assert plan.rows == "tile_m"
    assert bool(plan.long_last) == (kernel is causal_attention)
    assert all(op not in plan.between for op in plan.rescaling)


def test_forms_are_missing_with_a_reason():
    x = torch.empty(128, 100, dtype=HALF, device="meta")[:, :99]
    y = torch.empty(99, 128, dtype=HALF, device="meta")
    bound = matmul.bind(matmul.normalize_args(x, y), target="cuda:90")
    spec = bound.config_spec
    (reason,) = spec.rules.missing_ways(spec.kernel).values()
    assert reason.startswith("the copy engine cannot load x")
    assert "warp_roles" not in spec.forms()
