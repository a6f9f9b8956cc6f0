"""What is spelled out between products: roundings in pairs, tangents, fp8; and late loops."""

from __future__ import annotations

import math

import pytest
import torch

import tilesmith
import tilesmith.language as hl
from benchmarks.attention_forward import rounded_scores, sliding_window
from examples.attention import causal_attention
from examples.fp8_attention import FP8, fp8_attention
from examples.fp8_attention import reference as fp8_reference
from tests.backends.triton.warp_roles.gluon_simulator import Simulation
from tests.backends.triton.warp_roles.test_warp_role_simulation import check, config
from tests.backends.triton.warp_roles.warp_role_modules import emit
from tests.device.warp_role_cases import KERNELS, Case, make_args
from tilesmith.backends.triton.warp_roles.factors.bits import in_both_halves
from tilesmith.backends.triton.warp_roles.factors.growth import GROWTH_FUNCTIONS, find_growth
from tilesmith.backends.triton.warp_roles.instructions import SHORT_FUNCTIONS
from tilesmith.backends.triton.warp_roles.rules import FORM
from tilesmith.backends.triton.warp_roles.shortcuts.exponents import TANGENT_FUNCTIONS
from tilesmith.backends.triton.warp_roles.shortcuts.scaled_pairs import (
    PAIR_FUNCTIONS,
    split_factor,
)
from tilesmith.backends.triton.warp_roles.shortcuts.tangents import BEND_FUNCTIONS
from tilesmith.backends.triton.workarounds import narrow_conversions
from tilesmith.exc import InvalidConfig
from tilesmith.numerics.compare import check_against

HEADS = torch.zeros(2, 129, 16, dtype=torch.bfloat16)


def refusal(kernel, *args):
    spec = kernel.bind(args, target="cuda:90").config_spec
    return spec.rules.missing_ways(spec.kernel).get(FORM)


def rounded_exactly(q, k, v):
    """Scores as ``torch.bmm`` rounds them, and their multiples; the rest in fp64."""
    scale = math.log2(math.e) / math.sqrt(q.size(-1))
    scores = (q.float() @ k.float().mT).bfloat16().float() * scale
    return torch.softmax(scores.bfloat16().double() * math.log(2), -1) @ v.double()


def test_scores_are_rounded_as_written():
    q, k, v = make_args(Case("plain", 129, 16), "cpu")
    text = emit(rounded_scores, (q, k, v), **config(2, "flat"))
    assert "_scaled_bf16(product, " in text
    assert "_largest_bf16(" in text
    found = Simulation(text)["rounded_scores"](q, k, v)
    check(found, rounded_exactly(q, k, v), 129)


@pytest.mark.parametrize("n", [63, 64, 129])
def test_scores_that_grow_are_rounded_as_written(n):
    q, k, v = make_args(Case("plain", n, 32), "cpu")
    text = emit(rounded_scores, (q, k, v), **config(2, "flat"))
    assert "_grown_bf16(product, " in text
    found = Simulation(text)["rounded_scores"](q, k, v)
    check(found, rounded_exactly(q, k, v), n)


@tilesmith.kernel(static_shapes=True)
def exact_peak(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """Sums of keys by powers of rounded scores, relative to the largest score that is not."""
    out = torch.empty_like(q)
    for tile_b, tile_m in hl.tile([q.size(0), q.size(1)]):
        peak = hl.full([tile_b, tile_m], -math.inf, dtype=torch.float32)
        acc = hl.zeros([tile_b, tile_m, q.size(2)], dtype=torch.float32)
        for tile_n in hl.tile(k.size(1)):
            keys = k[tile_b, tile_n, :]
            scores = torch.bmm(q[tile_b, tile_m, :], keys.transpose(1, 2), torch.float32)
            new_peak = torch.maximum(peak, scores.amax(-1))
            rounded = scores.to(torch.bfloat16).to(torch.float32)
            weights = torch.exp2(rounded - new_peak[:, :, None])
            acc = acc * torch.exp2(peak - new_peak)[:, :, None]
            acc, peak = torch.baddbmm(acc, weights.to(k.dtype), keys), new_peak
        out[tile_b, tile_m, :] = acc.to(out.dtype)
    return out


def test_maxima_that_are_not_rounded_stay_exact():
    text = emit(exact_peak, (HEADS, HEADS), **config(2, "flat"))
    assert "_through_bf16(" in text
    assert "_largest_bf16(" not in text


ALL_BF16 = torch.arange(-(1 << 15), 1 << 15).to(torch.int16).view(torch.bfloat16)


@pytest.mark.parametrize("head_dim", [16, 32, 64, 128, 256])
@pytest.mark.parametrize("unit", [1.0, math.log2(math.e)])
def test_factors_in_two_parts_scale_every_number_to_the_same_bits(head_dim, unit):
    scale = unit / math.sqrt(head_dim)
    parts = split_factor(scale)
    assert parts is not None
    names = Simulation("".join(PAIR_FUNCTIONS.values()))
    words = [in_both_halves(part) for part in parts]
    found = names["_scaled_bf16" if parts[1:] else "_times_bf16"](ALL_BF16.float(), *words)
    wanted = (ALL_BF16.float() * scale).bfloat16().float()
    is_large = (ALL_BF16 == 0) | (ALL_BF16.float().abs() >= 2.0**-100)
    assert torch.equal(found.isnan(), wanted.isnan())
    known = is_large & ~wanted.isnan()
    assert torch.equal(found[known], wanted[known])


@pytest.mark.parametrize("head_dim", [32, 128, 512])
def test_factors_that_grow_scale_every_number_to_the_same_bits(head_dim):
    scale = math.log2(math.e) / math.sqrt(head_dim)
    growth = find_growth(scale)
    assert growth is not None
    grown = Simulation("".join(GROWTH_FUNCTIONS.values()))["_grown_bf16"]
    found = grown(ALL_BF16.float(), in_both_halves(growth[0])) * growth[1]
    wanted = (ALL_BF16.float() * scale).bfloat16().float()
    size = ALL_BF16.float().abs()
    known = (size == 0) | (size.isinf()) | ((size >= 2.0**-100) & (size < 3.2e38))
    assert torch.equal(found.isnan(), wanted.isnan())
    assert torch.equal(found[known], wanted[known])


def test_other_factors_do_not_grow():
    for factor in (
        0.5,
        1.0,
        1.44 / 16,
        1 / math.sqrt(128),
        1 / math.sqrt(80),
        0.0,
        -1.02,
        math.inf,
    ):
        assert find_growth(factor) is None


def test_factors_that_have_no_two_parts_are_left_alone():
    assert split_factor(0.5) == (0.5,)
    assert split_factor(1 / math.sqrt(80)) is None
    assert split_factor(math.inf) is None
    assert split_factor(-0.1) is None


@pytest.mark.parametrize(
    ("kind", "n", "heads"), [("soft cap", 129, 1), ("window", 1300, 1), ("causal", 129, 1)]
)
def test_other_ways_to_write_it(kind, n, heads):
    kernel, exact = KERNELS[kind]
    args = make_args(Case(kind, n, 16, heads=heads), "cpu")
    found = Simulation(emit(kernel, args, **config(2, "flat")))[kernel.fn.__name__](*args)
    check(found, exact(*args), n)


def test_tangents_are_within_eight_units_in_the_last_place():
    names = Simulation("".join(TANGENT_FUNCTIONS.values()))
    x = torch.cat([torch.linspace(-12, 12, 100_001), torch.logspace(-30, 4, 50_001)])
    x = torch.cat([x, torch.tensor([0.0, -0.0, math.inf, -math.inf])])
    found, wanted = names["_tanh"](x), torch.tanh(x.double())
    unit = torch.nextafter(wanted.abs().float(), torch.tensor(2.0)) - wanted.abs().float()
    assert (((found.double() - wanted) / unit).abs() <= 8).all()
    assert found.abs().max() == 1.0
    assert names["_tanh"](torch.tensor([math.nan])).isnan().all()


def test_tangents_in_exponents_are_off_by_little():
    names = Simulation("".join(BEND_FUNCTIONS.values()))
    x = torch.cat([torch.linspace(-40, 40, 100_001), torch.tensor([math.inf, -math.inf, 0.0])])
    for factor in (1.0, 0.05):
        found = names["_bend"](x, 2 * factor * math.log2(math.e))
        assert (found.double() - torch.tanh(x.double() * factor)).abs().max() < 2.0**-22
        assert found.abs().max() == 1.0
    assert names["_bend"](torch.tensor([math.nan]), 1.0).isnan().all()


def test_tangents_that_share_a_reciprocal_are_off_by_little():
    names = Simulation("".join(BEND_FUNCTIONS.values()))
    x = torch.cat([torch.linspace(-80, 80, 1 << 16), torch.linspace(-3, 3, 1 << 16)])
    # Neighbours of all sizes, so that products of four go from one to the largest that there are.
    x = x[torch.randperm(x.numel(), generator=torch.Generator().manual_seed(0))]
    odd = torch.tensor([math.inf, -math.inf, 3e38, -3e38, 0.0, -0.0, 1e-30, 90.0])
    x = torch.cat([x, odd.repeat(8), torch.full([64], math.inf)]).reshape(-1, 64)
    for factor in (1.0, 0.05):
        found = names["_bend_rows"](x, 2 * factor * math.log2(math.e), None)
        assert (found.double() - torch.tanh(x.double() * factor)).abs().max() < 2.0**-21
        assert found.max() == 1.0
    x[5, 7] = math.nan
    is_bad = names["_bend_rows"](x, 1.0, None).isnan()
    assert is_bad[5, 7]
    assert not is_bad[torch.arange(x.size(0)) != 5].any()


@tilesmith.kernel(static_shapes=True)
def natural(q: torch.Tensor, k: torch.Tensor, way: hl.constexpr) -> torch.Tensor:
    """Sums of keys by powers of e: of scores, or of how far below the largest they are."""
    out = torch.empty_like(q)
    for tile_b, tile_m in hl.tile([q.size(0), q.size(1)]):
        peak = hl.full([tile_b, tile_m], -math.inf, dtype=torch.float32)
        acc = hl.zeros([tile_b, tile_m, q.size(2)], dtype=torch.float32)
        for tile_n in hl.tile(k.size(1)):
            keys = k[tile_b, tile_n, :]
            scores = torch.bmm(q[tile_b, tile_m, :], keys.transpose(1, 2), torch.float32)
            if way == "below":
                new_peak = torch.maximum(peak, scores.amax(-1))
                acc = acc * torch.exp(peak - new_peak)[:, :, None]
                weights, peak = torch.exp(scores - new_peak[:, :, None]), new_peak
            else:
                weights = torch.exp(scores)
            acc = torch.baddbmm(acc, weights.to(k.dtype), keys)
        out[tile_b, tile_m, :] = acc.to(out.dtype)
    return out


@pytest.mark.parametrize(("way", "is_exact"), [("below", False), ("alone", True)])
def test_powers_below_a_maximum_are_powers_of_two(way, is_exact):
    torch.manual_seed(0)
    q, k = (torch.randn(2, 129, 16).bfloat16() for _ in range(2))
    text = emit(natural, (q, k, way), **config(2, "flat"))
    assert ("libdevice.exp(" in text) == is_exact
    found = Simulation(text)["natural"](q, k, way)
    scores = q.double() @ k.double().mT
    if way == "below":
        scores = scores - scores.amax(-1, keepdim=True)
    check(found, torch.exp(scores) @ k.double(), 129)


@tilesmith.kernel(static_shapes=True)
def bent(q: torch.Tensor, k: torch.Tensor, way: hl.constexpr) -> torch.Tensor:
    """Sums of bent scores times keys: of themselves, or of their powers."""
    out = torch.empty_like(q)
    for tile_b, tile_m in hl.tile([q.size(0), q.size(1)]):
        acc = hl.zeros([tile_b, tile_m, q.size(2)], dtype=torch.float32)
        for tile_n in hl.tile(k.size(1)):
            keys = k[tile_b, tile_n, :]
            scores = torch.bmm(q[tile_b, tile_m, :], keys.transpose(1, 2), torch.float32)
            scores = torch.tanh(scores * 0.01) * (300.0 if way == "steep" else 30.0)
            if way == "chosen":
                scores = torch.where(tile_n.index > 5, scores, float("-inf"))
            if way != "plain":
                scores = torch.exp(scores - 30.0)
            acc = torch.baddbmm(acc, scores.to(k.dtype), keys)
        out[tile_b, tile_m, :] = acc.to(out.dtype)
    return out


@pytest.mark.parametrize(
    ("way", "name"),
    [("plain", "_tanh"), ("steep", "_tanh"), ("", "_bend_rows"), ("chosen", "_bend")],
)
def test_only_exponents_are_bent_by_an_exponential(way, name):
    # Numbers that share a reciprocal share a NaN, so none do where a selection may hide one.
    text = emit(bent, (HEADS, HEADS, way), **config(2, "flat"))
    names = ("_tanh", "_bend_rows", "_bend")
    assert [each for each in names if f"{each}(" in text] == [name]


@pytest.mark.parametrize(("n", "groups"), [(128, 2), (192, 3)])
@pytest.mark.parametrize("layout", ["heads first", "rows first"])
def test_fp8(n, groups, layout):
    """Keys lie in their own order where the copy engine has axes for it, else lanes exchange."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, n, 32).to(FP8) for _ in range(3))
    if layout == "rows first":
        k = k.view(torch.uint8).transpose(0, 1).contiguous().transpose(0, 1).view(FP8)
    args = (q, k, v.transpose(1, 2).contiguous())
    options = {"block_sizes": [64 * groups, 64], "num_warps": 4 * groups, "num_stages": 3}
    text = emit(fp8_attention, args, **options)
    assert ("shfl.sync" in text) == (layout == "rows first")
    assert ("_pack_whole_fp8" in text) == (layout == "heads first")
    found = Simulation(text)["fp8_attention"](*args)
    check_against(found, fp8_reference(*args), reduction_length=n, intermediate=FP8)


@tilesmith.kernel(static_shapes=True)
def causal_fp8(q: torch.Tensor, k: torch.Tensor, v_t: torch.Tensor, slope: float) -> torch.Tensor:
    """Scores fall with the distance of a key, and those of later keys are left out."""
    out = torch.empty(q.size(), dtype=torch.float32, device=q.device)
    for tile_b, tile_m in hl.tile([q.size(0), q.size(1)], block_size=[1, None]):
        head = tile_b.begin
        peak = hl.full([tile_m], -math.inf, dtype=torch.float32)
        total = hl.zeros([tile_m], dtype=torch.float32)
        acc, queries = hl.zeros([tile_m, q.size(2)], dtype=torch.float32), q[head, tile_m, :]
        for tile_n in hl.tile(k.size(1)):
            behind = tile_m.index[:, None] - tile_n.index[None, :]
            scores = hl.dot(queries, k[head, tile_n, :].T) * 0.1
            scores = torch.where(behind >= 0, scores - slope * behind.to(torch.float32), -math.inf)
            new_peak = torch.maximum(peak, scores.amax(-1))
            weights = torch.exp2(scores - new_peak[:, None])
            shrink = torch.exp2(peak - new_peak)
            total = total * shrink + weights.sum(-1)
            acc = hl.dot(weights.to(FP8), v_t[head, :, tile_n].T, acc=acc * shrink[:, None])
            peak = new_peak
        out[head, tile_m, :] = acc / total[:, None]
    return out


def test_positions_follow_the_order_of_keys():
    torch.manual_seed(0)
    n, slope = 256, 0.125
    q, k, v = (torch.randn(2, n, 32).to(FP8) for _ in range(3))
    args = (q, k, v.transpose(1, 2).contiguous(), slope)
    text = emit(causal_fp8, args, block_sizes=[128, 64], num_warps=8)
    # Lanes that are left out are alike, which ptxas gets wrong where halves are put together.
    assert "= _pack_ordered_fp8(" in text or "_pack_ordered_fp8(weights" in text
    assert "mov.b32 $0, {low, high}" not in text
    found = Simulation(text)["causal_fp8"](*args)
    behind = torch.arange(n)[:, None] - torch.arange(n)[None, :]
    scores = (q.double() @ k.double().mT * 0.1 - slope * behind) * math.log(2)
    weights = torch.softmax(scores.masked_fill(behind < 0, -math.inf), -1)
    check_against(found, weights @ v.double(), reduction_length=n, intermediate=FP8)


@tilesmith.kernel(static_shapes=True)
def weighted_twice(
    q: torch.Tensor, k: torch.Tensor, v_t: torch.Tensor, wide: torch.Tensor, limit: hl.constexpr
) -> tuple[torch.Tensor, torch.Tensor]:
    """The same weights in two types, for values of each."""
    out, other = (torch.empty(q.size(), dtype=torch.float32, device=q.device) for _ in range(2))
    for tile_b, tile_m in hl.tile([q.size(0), q.size(1)], block_size=[1, None]):
        head = tile_b.begin
        acc = hl.zeros([tile_m, q.size(2)], dtype=torch.float32)
        rest, queries = hl.zeros([tile_m, q.size(2)], dtype=torch.float32), q[head, tile_m, :]
        for tile_n in hl.tile(k.size(1)):
            scores = hl.dot(queries, k[head, tile_n, :].T) * 0.1
            weights = torch.exp2(torch.clamp(scores, max=limit))
            acc = hl.dot(weights.to(FP8), v_t[head, :, tile_n].T, acc=acc)
            rest = hl.dot(weights.to(wide.dtype), wide[head, tile_n, :], acc=rest)
        out[head, tile_m, :] = acc
        other[head, tile_m, :] = rest
    return out, other


def test_keys_of_wider_weights_stay_in_order(monkeypatch):
    monkeypatch.setattr(narrow_conversions, "saturates", lambda: False)  # as torch before 2.13
    torch.manual_seed(0)
    n = 128
    q, k, v = (torch.randn(2, n, 32).to(FP8) for _ in range(3))
    args = (q, k, v.transpose(1, 2).contiguous(), torch.randn(2, n, 32).bfloat16(), 6)
    assert "of any size" in str(refusal(weighted_twice, *args[:4], 9))  # 2**9 is above 448
    text = emit(weighted_twice, args, block_sizes=[128, 64], num_warps=8)
    found = Simulation(text)["weighted_twice"](*args)
    weights = torch.exp2(q.double() @ k.double().mT * 0.1)
    for result, values, dtype in zip(found, (v, args[3]), (FP8, torch.bfloat16)):
        exact = weights @ values.double()
        check_against(result, exact, reduction_length=n, intermediate=dtype)


def test_fp8_has_whole_tiles():
    sizes = {n: ((n, 64), (n, 64), (64, n)) for n in (592, 640, 704)}
    made = {n: [torch.zeros(2, *shape).to(FP8) for shape in sizes[n]] for n in sizes}
    assert "between whole tiles" in str(refusal(fp8_attention, *made[592]))
    assert refusal(fp8_attention, *made[640]) is None
    spec = fp8_attention.bind(tuple(made[704]), target="cuda:90").config_spec.forms()[FORM]
    assert spec.default_config()["block_sizes"][-1] == 64
    with pytest.raises(InvalidConfig, match="steps of 128"):
        emit(fp8_attention, made[704], block_sizes=[128, 128], num_warps=8)


def test_fp8_values_must_lie_along_the_sum():
    q, v = torch.zeros(2, 256, 64).to(FP8), torch.zeros(2, 256, 64).to(FP8)
    assert refusal(fp8_attention, q, q.clone(), v.transpose(1, 2).contiguous()) is None
    reason = refusal(fp8_attention, q, q.clone(), v.transpose(1, 2))
    assert "do not lie along the sum" in str(reason)


def test_first_turns_are_masked_only_where_they_need_it():
    text = emit(causal_attention, (HEADS, HEADS, HEADS), **config(2, "flat"))
    assert "if full_to > 0:" in text
    biased, _ = KERNELS["bias"]
    args = make_args(Case("bias", 129, 16), "cpu")
    assert "if full_to > 0:" not in emit(biased, args, **config(2, "flat"))


@tilesmith.kernel(static_shapes=True)
def late(q: torch.Tensor, k: torch.Tensor, offset: hl.constexpr) -> torch.Tensor:
    """Sums over the keys from some before the query up to it."""
    out = torch.empty_like(q)
    for tile_b, tile_m in hl.tile([q.size(0), q.size(1)]):
        acc = hl.zeros([tile_b, tile_m, q.size(2)], dtype=torch.float32)
        for tile_n in hl.tile(max(tile_m.begin - offset, 0), tile_m.end):
            keys = k[tile_b, tile_n, :]
            scores = torch.bmm(q[tile_b, tile_m, :], keys.transpose(1, 2), torch.float32)
            acc = torch.baddbmm(acc, scores.to(k.dtype), keys)
        out[tile_b, tile_m, :] = acc.to(out.dtype)
    return out


def test_loops_begin_at_whole_tiles():
    q = torch.zeros(2, 1024, 64, dtype=torch.bfloat16)
    assert refusal(sliding_window, q, q.clone(), q.clone()) is None
    assert "begins or ends between" in str(refusal(late, q, q.clone(), 127))
    spec = late.bind((q, q.clone(), 96), target="cuda:90").config_spec.forms()[FORM]
    assert spec.default_config()["block_sizes"][-1] == 32


def test_one_row_has_no_roles():
    q = torch.zeros(2, 1, 64, dtype=torch.bfloat16)
    assert refusal(KERNELS["plain"][0], q, q.clone(), q.clone()).startswith("tile_m has one")


@pytest.mark.parametrize("name", [*SHORT_FUNCTIONS, *PAIR_FUNCTIONS])
def test_types_of_several_results_are_written_at_the_call(name):
    # Triton 3.9 fails on a tuple of types in a variable that is constant.
    text = {**SHORT_FUNCTIONS, **PAIR_FUNCTIONS}[name]
    assert "gl.constexpr = (" not in text
