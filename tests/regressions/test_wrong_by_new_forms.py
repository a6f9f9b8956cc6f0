"""Kernels that forms and rules took for simpler than they are."""

from __future__ import annotations

import pytest
import torch

import tilesmith
import tilesmith.language as hl
from benchmarks.attention_forward import rounded_scores
from tests.backends.triton.warp_roles.gluon_simulator import Simulation
from tests.backends.triton.warp_roles.warp_role_modules import emit
from tilesmith.analysis.spread_loops import find_spread_loop


@tilesmith.kernel(config=tilesmith.Config(block_sizes=[16, 16]))
def split_by_rows_joined_by_columns(x: torch.Tensor, widths: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for rows, columns in hl.tile(x.size()):
        index = x[rows, columns]
        quotient = index // widths[rows][:, None]
        own = widths[columns][None, :]
        out[rows, columns] = quotient * own + index % own
    return out


def test_an_index_is_whole_again_only_by_the_same_width_in_every_lane():
    x = torch.arange(1024, dtype=torch.int32).reshape(32, 32)
    widths = torch.arange(1, 33, dtype=torch.int32)
    expected = x // widths[:, None] * widths + x % widths
    assert torch.equal(split_by_rows_joined_by_columns(x, widths), expected)


@tilesmith.kernel(static_shapes=True)
def last_tile_stays(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros([x.size(0), 16, x.size(2)], dtype=x.dtype, device=x.device)
    for group in hl.grid(x.size(0)):
        for rows, columns in hl.tile([x.size(1), x.size(2)], block_size=[16, None]):
            out[group, rows.index - rows.begin, columns] = x[group, rows, columns]
    return out


@tilesmith.kernel(static_shapes=True)
def two_stores(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros([x.size(0), x.size(1) + 8], dtype=x.dtype, device=x.device)
    for group in hl.grid(x.size(0)):
        for tile in hl.tile(x.size(1)):
            out[group, tile] = x[group, tile]
            out[group, tile.index + 8] = x[group, tile]
    return out


@tilesmith.kernel(static_shapes=True)
def one_store(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for group in hl.grid(x.size(0)):
        for tile in hl.tile(x.size(1)):
            out[group, tile] = x[group, tile]
    return out


def _spread_axes(kernel, *sizes: int) -> tuple[int, ...]:
    bound = kernel.bind((torch.randn(sizes),), target="cuda:90")
    found = find_spread_loop(bound.config_spec.function)
    return () if found is None else found.moved


def test_tiles_that_meet_in_memory_are_not_spread_over_programs():
    assert _spread_axes(one_store, 4, 256) == (0,)
    assert _spread_axes(two_stores, 4, 256) == ()
    # Columns are apart, rows are not.
    assert _spread_axes(last_tile_stays, 4, 64, 32) == (1,)


@tilesmith.kernel(static_shapes=True)
def sums_of_lanes(x: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    block = hl.register_block_size(16, 16)
    out = torch.empty([ends.size(0) - 1, 16, x.size(1)], dtype=x.dtype, device=x.device)
    for group in hl.grid(ends.size(0) - 1):
        acc = hl.zeros([block, x.size(1)], dtype=torch.float32)
        for rows in hl.tile(ends[group], ends[group + 1], block_size=block):
            acc = acc + x[rows, :]
        out[group, hl.arange(block), :] = acc
    return out


def test_lanes_that_are_stored_after_their_loop_are_masked_when_loaded():
    args = (torch.randn(64, 32), torch.tensor([0, 5, 64]))
    bound = sums_of_lanes.bind(args, target="cuda:90")
    text = bound.to_triton_code(tilesmith.Config(block_sizes=[16], indexing="tensor_descriptor"))
    assert "x_desc" not in text


@tilesmith.kernel(static_shapes=True)
def scaled_by_tile(x: torch.Tensor, y: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0), y.size(1)], dtype=torch.float32, device=x.device)
    for m, n in hl.tile([x.size(0), y.size(1)]):
        acc = hl.zeros([m, n], dtype=torch.float32)
        for k in hl.tile(x.size(1), block_size=512):
            acc = torch.addmm(acc, x[m, k], y[k, n] * scales[k.begin])
        out[m, n] = acc
    return out


def test_parts_of_a_sum_are_no_shorter_than_tiles_of_a_given_size():
    args = tuple(torch.randn(size).half() for size in ((32, 8192), (8192, 32), (8192,)))
    spec = scaled_by_tile.bind(args, target="cuda:90").config_spec
    (parts,) = (b for b in spec.forms()["sum_parts"].function.blocks if b.name == "parts")
    assert parts.low >= 512


def _sum_and_least(a, b):
    return a[0] + b[0], torch.minimum(a[1], b[1])


@tilesmith.kernel(static_shapes=True)
def sums_and_minima(x: torch.Tensor, ends: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    total = torch.empty([x.size(0)], dtype=torch.float32, device=x.device)
    least = torch.empty_like(total)
    for group in hl.grid(ends.size(0) - 1):
        for rows in hl.tile(ends[group], ends[group + 1]):
            values = x[rows, :]
            others = (0, float("inf"))
            found = hl.reduce(_sum_and_least, (values, values * 2), dim=1, other=others)
            total[rows], least[rows] = found
    return total, least


def test_lanes_are_followed_through_reductions_of_several_tiles():
    args = (torch.randn(64, 32), torch.tensor([0, 5, 64]))
    bound = sums_and_minima.bind(args, target="cuda:90")
    text = bound.to_triton_code(tilesmith.Config(block_sizes=[16], indexing="tensor_descriptor"))
    # Rows of the next group are summed and not stored.
    assert "x_desc.load(" in text


@tilesmith.kernel(static_shapes=True)
def gradients_over_pages(
    grads: torch.Tensor, q: torch.Tensor, pages: torch.Tensor, table: torch.Tensor
) -> torch.Tensor:
    out = torch.empty_like(q)
    width, size = hl.specialize(q.size(1)), hl.specialize(pages.size(1))
    for rows in hl.tile(q.size(0)):
        queries, weights = q[rows, :], grads[rows, :]
        acc = hl.zeros([rows, width], dtype=torch.float32)
        for i in hl.grid(table.size(0)):
            page = table[i]
            for columns in hl.tile(size):
                keys = pages[page, columns, :]
                powers = torch.exp2(hl.dot(queries, keys.T))
                along = powers * hl.dot(weights, keys.T)
                acc = hl.dot(along.to(keys.dtype), keys, acc=acc)
        out[rows, :] = acc.to(out.dtype)
    return out


def test_turns_of_two_parts_over_a_list_have_no_roles():
    heads = torch.empty(256, 64, dtype=torch.bfloat16, device="meta")
    pages = torch.empty(8, 64, 64, dtype=torch.bfloat16, device="meta")
    table = torch.empty(4, dtype=torch.int32, device="meta")
    spec = gradients_over_pages.bind((heads, heads, pages, table), target="cuda:90").config_spec
    assert "warp_roles" not in spec.forms()
    assert "structure" not in spec.default_config()
    (reason,) = spec.rules.missing_ways(spec.kernel).values()
    assert "turns of two parts do not go over a list" in reason


SCALE, LOG2_E = 0.3, 1.4426950408889634


@tilesmith.kernel(static_shapes=True)
def maxima_between_factors(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """The sum of powers is 1 where there is one key, whatever its score."""
    totals = torch.empty([q.size(0), q.size(1)], dtype=torch.float32, device=q.device)
    out = torch.empty_like(q)
    for head, rows in hl.tile([q.size(0), q.size(1)], block_size=[1, None]):
        queries = q[head, rows, :]
        peak = hl.full([head, rows], float("-inf"), dtype=torch.float32)
        total = hl.zeros([head, rows], dtype=torch.float32)
        acc = hl.zeros([head, rows, q.size(2)], dtype=torch.float32)
        for columns in hl.tile(k.size(1)):
            keys = k[head, columns, :]
            scores = torch.bmm(queries, keys.transpose(1, 2), torch.float32) * SCALE
            higher = torch.maximum(peak, scores.amax(-1))
            powers = torch.exp2(scores * LOG2_E - (higher * LOG2_E)[:, :, None])
            shrink = torch.exp2((peak - higher) * LOG2_E)
            total = total * shrink + powers.sum(-1)
            acc = torch.baddbmm(acc * shrink[:, :, None], powers.to(keys.dtype), keys)
            peak = higher
        out[head, rows, :] = (acc / total[:, :, None]).to(out.dtype)
        totals[head, rows] = total
    return totals


def test_factors_stay_apart_where_a_maximum_is_read_between_them():
    torch.manual_seed(0)
    q, k = torch.randn(1, 64, 16).bfloat16() * 64, torch.randn(1, 1, 16).bfloat16() * 64
    k = k.expand(1, 16, 16).contiguous()
    text = emit(maxima_between_factors, (q, k), block_sizes=[64, 16], num_warps=4)
    totals = Simulation(text)["maxima_between_factors"](q, k)
    assert torch.equal(totals, torch.full_like(totals, 16.0))


def test_what_is_expanded_is_not_copied_by_default():
    # The copy engine takes no stride of 0: the default was a config that could not be built.
    q = torch.empty(32, 4096, 128, dtype=torch.bfloat16, device="meta")
    shared = torch.empty(1, 4096, 128, dtype=torch.bfloat16, device="meta").expand(32, 4096, 128)
    bound = rounded_scores.bind((q, shared, shared), target="cuda:90")
    config = bound.config_spec.default_config()
    assert "structure" not in config
    assert "tl.dot(" in bound.to_triton_code(config)


@pytest.mark.parametrize(("heads", "queries", "keys"), [(0, 64, 64), (2, 0, 64), (2, 64, 0)])
def test_what_is_empty_is_not_copied_by_default(heads: int, queries: int, keys: int):
    q, k = (torch.empty(heads, n, 64, dtype=torch.bfloat16, device="meta") for n in (queries, keys))
    bound = rounded_scores.bind((q, k, k), target="cuda:90")
    assert list(bound.config_spec.forms()) == [""]
    assert "tl.dot(" in bound.to_triton_code(bound.config_spec.default_config())
