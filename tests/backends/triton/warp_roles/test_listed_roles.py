"""Warp roles for loops over blocks whose places are loaded: block masks, pages."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import tilesmith
import tilesmith.language as hl
from examples import flex_attention as flex
from examples.attention import LOG2_E
from tests.backends.triton.warp_roles.gluon_simulator import Simulation
from tests.backends.triton.warp_roles.warp_role_model import Explorer, record
from tests.backends.triton.warp_roles.warp_role_modules import any_stages, emit
from tilesmith.backends.triton.warp_roles.factors.joined import in_single
from tilesmith.backends.triton.warp_roles.plan import RolePlan, plan_roles
from tilesmith.backends.triton.warp_roles.refusals import Refusal
from tilesmith.exc import InvalidConfig
from tilesmith.numerics.compare import check_against

FORM = "warp_roles"
WIDTH = 16
BF16 = [torch.bfloat16] * 2
SLOPES = torch.exp2(-torch.arange(4).float())


def config(warps, step, pid="flat", stages=2):
    return {"block_sizes": [step], "num_warps": warps, "num_stages": stages, "pid_type": pid}


def heads(counts, sizes, width=WIDTH):
    torch.manual_seed(sum(sizes))
    (queries, keys), (m, n) = counts, sizes
    shapes = ((queries, m), (keys, n), (keys, n))
    return [torch.randn(1, count, size, width).bfloat16() for count, size in shapes]


def block_mask(mask_mod, counts, sizes, block):
    return flex.make_block_mask(mask_mod, (1, counts[0]), sizes, block, "cpu")


def check(args, options):
    out, lse = Simulation(emit(flex.flex_attention, args, **options))["flex_attention"](*args)
    exact, exact_lse = flex.reference(*args)
    check_against(out, exact, reduction_length=args[1].size(2), intermediate=BF16)
    check_against(lse, exact_lse, reduction_length=WIDTH, intermediate=torch.float16)


@pytest.mark.parametrize(
    ("mask_mod", "sizes", "block", "options"),
    [
        (flex.causal, (256, 256), 128, config(8, 64, "persistent_interleaved")),
        (flex.causal, (192, 192), 64, config(4, 64, stages=3)),
        (flex.sliding_window(40), (130, 192), 64, config(4, 64, "persistent_interleaved")),
        (flex.sliding_window(70), (100, 256), 128, config(8, 32)),
    ],
)
def test_listed_blocks(mask_mod, sizes, block, options):
    counts = (4, 2)
    mask = block_mask(mask_mod, counts, sizes, block)
    check((*heads(counts, sizes), mask, flex.alibi(SLOPES), mask_mod), options)


def test_lists_have_any_order_and_may_be_empty():
    counts, sizes = (4, 2), (192, 256)
    mask = block_mask(flex.causal, counts, sizes, 64)
    q, k, v = heads(counts, sizes)
    plain = (q, k, v, mask, flex.no_change, flex.causal)
    text = emit(flex.flex_attention, plain, **config(4, 32, "persistent_interleaved"))
    run = Simulation(text)["flex_attention"]
    used = torch.arange(4) < mask.counts[..., None]
    turned = torch.where(used, mask.counts[..., None] - 1 - torch.arange(4), 0)
    blocks = mask.blocks.gather(-1, turned.long())
    exact, _ = flex.reference(q, k, v, mask, flex.no_change, flex.causal)
    empty = mask.counts.clone()
    empty[1] = 0
    out, _ = run(q, k, v, mask._replace(counts=empty, blocks=blocks), flex.no_change, flex.causal)
    assert torch.equal(out[0, 1], torch.zeros_like(out[0, 1]))
    for head in (0, 2, 3):
        check_against(out[0, head], exact[0, head], reduction_length=256, intermediate=BF16)


@pytest.mark.parametrize("turns", [(0, 1), (1, 2), (3, 0)])
def test_every_order(turns):
    kernel = tilesmith.kernel(flex.flex_attention.fn, static_shapes=True)
    counts, sizes = (1, 1), (256, 64)
    mask = flex.make_block_mask(flex.causal, counts, sizes, 128, "cpu")._replace(key_block=32)
    args = (*heads(counts, sizes), mask, flex.no_change, flex.causal)
    with any_stages():
        text = emit(kernel, args, **config(8, 16, "persistent_interleaved"))
    assert Explorer(record(text, "flex_attention", args, turns)).explore() > sum(turns)


def test_turns_know_for_themselves_whether_they_need_masks():
    counts, sizes = (4, 2), (256, 256)
    args = (*heads(counts, sizes), block_mask(flex.causal, counts, sizes, 128))
    text = emit(flex.flex_attention, (*args, flex.no_change, flex.causal), **config(8, 64))
    assert "is_cut = (offset_m" in text
    assert "if IS_MASKED:" in text
    assert "full_from" not in text


def test_blocks_that_may_lie_past_the_end_are_refused():
    # For such a block the source runs no turn: its zeros were summed, or gave NaN.
    counts, sizes = (4, 2), (128, 200)
    args = (*heads(counts, sizes), block_mask(flex.causal, counts, sizes, 64))
    with pytest.raises(InvalidConfig, match="the kernel has one form"):
        emit(flex.flex_attention, (*args, flex.no_change, flex.causal), **config(4, 64))


def spec_of(kernel, args):
    return kernel.bind(kernel.normalize_args(*args), target="cuda:90").config_spec


def meta_args(length=2048, block=128, width=128):
    q, k = (torch.empty(4, h, length, width, dtype=torch.bfloat16, device="meta") for h in (32, 8))
    counts = torch.empty(128, length // block, dtype=torch.int32, device="meta")
    blocks = counts[..., None].expand(-1, -1, length // block).contiguous()
    mask = flex.BlockMask(counts, blocks, block, block)
    return q, k, k.clone(), mask, flex.no_change, flex.causal


def test_it_is_the_default():
    chosen = spec_of(flex.flex_attention, meta_args()).default_config()
    assert (chosen["structure"], chosen["block_sizes"]) == (FORM, [128])


def test_two_factors_of_scores_are_one():
    """The user's changes stand between both; where there are none, nothing does."""
    counts, sizes = (4, 2), (128, 128)
    args = (*heads(counts, sizes), block_mask(flex.causal, counts, sizes, 64))
    plain = emit(flex.flex_attention, (*args, flex.no_change, flex.causal), **config(4, 64))
    # scores, and their maxima: once each
    assert plain.count(f"* {LOG2_E * 0.25:.8}"[:9]) == 2
    assert f"* {LOG2_E}" not in plain
    changed = emit(flex.flex_attention, (*args, flex.alibi(SLOPES), flex.causal), **config(4, 64))
    assert "* 0.25" in changed
    assert f"* {LOG2_E}" in changed


@pytest.mark.parametrize("first", [0.25, 1 / math.sqrt(128), 0.1])
def test_one_factor_errs_no_more_than_two_may(first):
    first, second = in_single(first), in_single(LOG2_E)
    torch.manual_seed(0)
    x = torch.randn(1 << 16)
    exact = x.double() * first * second
    error = (x * in_single(first * second) - exact).abs() / exact.abs()
    assert float(error.max()) <= 2 * 2.0**-24 * (1 + 2.0**-20)


@tilesmith.kernel(static_shapes=True)
def paged_attention(
    q: torch.Tensor, k_pages: torch.Tensor, v_pages: torch.Tensor, table: torch.Tensor
) -> torch.Tensor:
    """Keys of a sequence lie in pages, in the order of a table."""
    batch, m, d = q.size()
    head_dim, page_size = hl.specialize(d), hl.specialize(k_pages.size(1))
    out = torch.empty_like(q)
    scale = LOG2_E / math.sqrt(head_dim)
    for tile_b, tile_m in hl.tile([batch, m], block_size=[1, None]):
        queries = q[tile_b.begin, tile_m, :]
        peak = hl.full([tile_m], float("-inf"), dtype=torch.float32)
        total = hl.zeros([tile_m], dtype=torch.float32)
        acc = hl.zeros([tile_m, head_dim], dtype=torch.float32)
        for i in hl.grid(table.size(1)):
            page = table[tile_b.begin, i]
            for tile_n in hl.tile(page_size):
                scores = hl.dot(queries, k_pages[page, tile_n, :].T) * scale
                new_peak = torch.maximum(peak, scores.amax(-1))
                weights = torch.exp2(scores - new_peak[:, None])
                shrink = torch.exp2(peak - new_peak)
                total = total * shrink + weights.sum(-1)
                values = v_pages[page, tile_n, :]
                acc = hl.dot(weights.to(values.dtype), values, acc=acc * shrink[:, None])
                peak = new_peak
        out[tile_b.begin, tile_m, :] = acc / total[:, None]
    return out


@pytest.mark.parametrize("options", [config(4, 32), config(8, 16, "persistent_interleaved")])
def test_pages(options):
    torch.manual_seed(0)
    batch, m, pages, size = 2, 130, 3, 32
    q = torch.randn(batch, m, WIDTH).bfloat16()
    k, v = (torch.randn(8, size, WIDTH).bfloat16() for _ in range(2))
    table = torch.tensor([[5, 0, 3], [7, 2, 1]], dtype=torch.int32)
    rows = 16 * options["num_warps"]
    blocks = {**options, "block_sizes": [rows, *options["block_sizes"]]}
    text = emit(paged_attention, (q, k, v, table), **blocks)
    found = Simulation(text)["paged_attention"](q, k, v, table)
    keys, values = (x[table.long()].flatten(1, 2).double() for x in (k, v))
    exact = torch.softmax(q.double() @ keys.mT / math.sqrt(WIDTH), -1) @ values
    check_against(found, exact, reduction_length=pages * size, intermediate=BF16)


@tilesmith.kernel(static_shapes=True)
def of_any_length(
    q: torch.Tensor, k: torch.Tensor, begins: torch.Tensor, ends: torch.Tensor
) -> torch.Tensor:
    """Ends are loaded, too."""
    out = torch.empty_like(q)
    head_dim = hl.specialize(q.size(1))
    for tile_m in hl.tile(q.size(0)):
        queries = q[tile_m, :]
        acc = hl.zeros([tile_m, head_dim], dtype=torch.float32)
        for i in hl.grid(begins.size(0)):
            for tile_n in hl.tile(begins[i], ends[i]):  # refused
                keys = k[tile_n, :]
                weights = torch.exp2(hl.dot(queries, keys.T))
                acc = hl.dot(weights.to(keys.dtype), keys, acc=acc)
        out[tile_m, :] = acc.to(out.dtype)
    return out


@tilesmith.kernel(static_shapes=True)
def begun_anew(q: torch.Tensor, k: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Each block has a sum of its own."""
    out = torch.empty_like(q)
    head_dim = hl.specialize(q.size(1))
    for tile_m in hl.tile(q.size(0)):
        queries = q[tile_m, :]
        whole = hl.zeros([tile_m, head_dim], dtype=torch.float32)
        for i in hl.grid(places.size(0)):
            first = places[i] * 64
            acc = hl.zeros([tile_m, head_dim], dtype=torch.float32)
            for tile_n in hl.tile(first, first + 64):
                keys = k[tile_n, :]
                weights = torch.exp2(hl.dot(queries, keys.T))
                acc = hl.dot(weights.to(keys.dtype), keys, acc=acc)
            whole = whole + acc
        out[tile_m, :] = whole.to(out.dtype)
    return out


@pytest.mark.parametrize(
    ("kernel", "lists", "reason"),
    [(of_any_length, 2, "the same length"), (begun_anew, 1, "more than where a block lies")],
)
def test_other_nests_are_refused(kernel: Any, lists: int, reason: str):
    tile, places = torch.empty(256, 64, dtype=torch.bfloat16), torch.empty(4, dtype=torch.int32)
    args = (tile, tile.clone(), *(places.clone() for _ in range(lists)))
    found = plan_roles(spec_of(kernel, args).kernel.outline.function)
    assert isinstance(found, Refusal)
    assert reason in found.reason


def test_the_plan_names_both_loops():
    plan = plan_roles(spec_of(flex.flex_attention, meta_args()).kernel.outline.function)
    assert isinstance(plan, RolePlan)
    assert plan.listing is not None
    assert (plan.listing.size, plan.listing.last) == (128, 128)
    assert plan.is_uneven
