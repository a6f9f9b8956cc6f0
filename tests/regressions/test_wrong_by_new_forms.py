"""Kernels that forms and rules took for simpler than they are."""

from __future__ import annotations

import torch

import tilesmith
import tilesmith.language as hl
from tilesmith.analysis.spread_loops.site import find_spread_loop


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
