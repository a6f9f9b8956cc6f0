"""Defaults of kernels whose programs take many steps: rows of a step, of a program, and warps."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from examples.cross_entropy import cross_entropy
from examples.kl_div import kl_div
from examples.ports.cholesky import cholesky
from examples.ports.conv2d import conv2d
from examples.ports.fp8_blockwise import FP8, fp8_blockwise
from examples.ports.gated_delta_rule import gated_delta_rule
from examples.ports.split_kv_decode import attend_parts, join_parts
from tilesmith.schedule.spec import ConfigSpec


def default(kernel: Any, *arguments: Any, static_shapes: bool = True) -> Any:
    bound = helion.kernel(kernel, static_shapes=static_shapes).bind(arguments, target="cuda:90")
    return bound.default_config()


def unshared(kernel: Any, *arguments: Any, static_shapes: bool = True) -> Any:
    """The default among configs whose rows are one program's each."""
    bound = helion.kernel(kernel, static_shapes=static_shapes).bind(arguments, target="cuda:90")
    return ConfigSpec.default_config(bound.config_spec)


def decode(q, k, v, splits: int):
    (rows, d), length = q.size(), k.size(1)
    d = hl.specialize(d)
    out = torch.empty([rows, splits, d], dtype=torch.float32, device=q.device)
    share = helion.cdiv(length, splits)
    for row, split in hl.grid([rows, splits]):
        query = q[row, :].to(torch.float32)
        peak = hl.full([], float("-inf"), dtype=torch.float32)
        total = hl.zeros([], dtype=torch.float32)
        acc = hl.zeros([d], dtype=torch.float32)
        for keys in hl.tile(split * share, min((split + 1) * share, length)):
            scores = (k[row, keys, :].to(torch.float32) * query[None, :]).sum(-1)
            new_peak = torch.maximum(peak, scores.amax(-1))
            weights, shrink = torch.exp(scores - new_peak), torch.exp(peak - new_peak)
            total = total * shrink + weights.sum(-1)
            acc = acc * shrink + (weights[:, None] * v[row, keys, :].to(torch.float32)).sum(0)
            peak = new_peak
        out[row, split, :] = acc / total
    return out


@pytest.mark.parametrize("static_shapes", [True, False])
@pytest.mark.parametrize("rows", [1, 128])
def test_a_step_along_the_keys_takes_as_many_as_fill_a_tile(rows: int, static_shapes: bool):
    """Steps of a loop make no programs: it was one or two keys, for the sake of programs."""
    q, k = torch.empty(rows, 128).bfloat16(), torch.empty(rows, 512, 128).bfloat16()
    config = default(decode, q, k, k, 4, static_shapes=static_shapes)
    assert config.block_sizes == [32]


def test_split_kv_decode_with_products():
    """A short pipeline: three programs of such steps share a multiprocessor."""
    q, k = torch.empty(4, 32, 128).bfloat16(), torch.empty(4, 8192, 8, 128).bfloat16()
    config = default(attend_parts.fn, q, k, k, 16)
    assert (config.block_sizes, config.num_stages) == ([64], 2)


def test_parts_are_joined_along_memory():
    """Their weights lie along the splits, which must not keep a program from going along d."""
    parts, sums = torch.empty(4, 32, 16, 128), torch.empty(4, 32, 16)
    assert default(join_parts.fn, parts, sums, torch.bfloat16).block_sizes[0] >= 32


def nearest(x, centres):
    n, k = x.size(0), centres.size(0)
    out = torch.empty([n], dtype=torch.int64, device=x.device)
    for t in hl.tile(n):
        best = hl.full([t], float("inf"), dtype=torch.float32)
        which = hl.zeros([t], dtype=torch.int64)
        for u in hl.tile(k):
            offsets = x[t, :][:, None, :] - centres[u, :][None, :, :]
            distances = (offsets * offsets).sum(-1)
            least, place = distances.amin(-1), distances.argmin(-1) + u.begin
            which = torch.where(least < best, place, which)
            best = torch.minimum(best, least)
        out[t] = which
    return out


@pytest.mark.parametrize(
    ("rows", "width", "blocks", "warps"),
    [(65536, 16, [128, 1], 4), (131072, 64, [128, 1], 4), (5000, 64, [32, 1], 1)],
)
def test_a_thread_has_a_row_and_sees_one_centre_at_a_time(rows, width, blocks, warps):
    """Square tiles of rows and centres took five times as long on an H200."""
    config = default(nearest, torch.empty(rows, width), torch.empty(256, width))
    assert (config.block_sizes, config.num_warps) == (blocks, warps)


def test_long_rows_and_centres_share_a_tile():
    """One row for each program would read all centres again for each row."""
    rows, centres = default(nearest, torch.empty(65536, 256), torch.empty(256, 256)).block_sizes
    assert rows >= 4
    assert centres >= 4


@pytest.mark.parametrize("static_shapes", [True, False])
def test_programs_that_are_alone_have_all_warps(static_shapes: bool):
    """Fewer rows than multiprocessors; where nobody knows how many, as before."""
    few, many = torch.empty(8, 128256), torch.empty(4096, 128256)
    alone = unshared(kl_div.fn, few, few, static_shapes=static_shapes)
    among = unshared(kl_div.fn, many, many, static_shapes=static_shapes)
    assert (alone == among) == (not static_shapes)
    if static_shapes:
        assert (alone.block_sizes, alone.num_warps) == ([1, 16384], 32)
        assert among.block_sizes == [1, 4096]


@pytest.mark.parametrize(
    ("rows", "columns", "chunk", "warps"), [(8, 128256, 32768, 32), (64, 32000, None, 32)]
)
def test_few_long_rows(rows: int, columns: int, chunk: int | None, warps: int):
    logits, labels = torch.empty(rows, columns).bfloat16(), torch.empty(rows, dtype=torch.int64)
    config = unshared(cross_entropy.fn, logits, labels)
    assert (config.reduction_loops, config.num_warps) == ([chunk], warps)


def solve_columns(lower, b):
    n, m = b.size()
    out = torch.empty_like(b)
    for t in hl.tile(m):
        for j in range(n):
            acc = b[j, t]
            for i in range(j):
                acc = acc - lower[j, i] * out[i, t]
            out[j, t] = acc / lower[j, j]
    return out


@pytest.mark.parametrize(
    ("columns", "blocks", "warps"), [(64, 32, 1), (4096, 32, 1), (1 << 20, 256, 4)]
)
def test_long_programs_are_spread_over_the_device(columns: int, blocks: int, warps: int):
    config = default(solve_columns, torch.empty(64, 64), torch.empty(64, columns))
    assert (config.block_sizes, config.num_warps) == ([blocks], warps)


@pytest.mark.parametrize(("batch", "n"), [(4096, 32), (1 << 20, 32), (1 << 20, 8)])
def test_matrices_of_a_program_fit_its_registers(batch: int, n: int):
    config = default(cholesky.fn, torch.empty(1, n, n).expand(batch, n, n))
    assert config.block_sizes[0] * n * n <= 8192
    assert config.num_warps <= 4


def test_a_carried_tile_is_never_two_columns_wide():
    """Triton gives each thread a whole column of such a tile: it spilled."""
    q, v = torch.empty(2, 16, 2, 128).bfloat16(), torch.empty(2, 16, 4, 128).bfloat16()
    rates = torch.empty(2, 16, 4)
    config = default(gated_delta_rule.fn, q, q, v, rates, rates, static_shapes=False)
    assert config.block_sizes == [1]


def test_a_product_that_is_scaled_before_it_is_added_is_a_second_sum():
    """Both have 128 registers of each thread in a tile of 128x256: it spilled."""
    x, w = torch.empty(512, 1024).to(FP8), torch.empty(1024, 1024).to(FP8)
    config = default(
        fp8_blockwise.fn, x, w, torch.empty(512, 8), torch.empty(8, 8), static_shapes=False
    )
    assert config.block_sizes == [128, 128]


@pytest.mark.parametrize(("static_shapes", "warps"), [(True, 4), (False, 8)])
def test_addresses_of_gathered_operands_are_spread_over_more_warps(static_shapes, warps):
    """Places that are looked up and multiplied by runtime strides: four warps spilled."""
    x, weight = torch.empty(2, 128, 28, 28).bfloat16(), torch.empty(128, 128, 3, 3).bfloat16()
    config = default(conv2d.fn, x, weight, 1, 1, static_shapes=static_shapes)
    assert config.num_warps == warps


@pytest.mark.parametrize("width", [3, 12, 33])
def test_warps_of_steps_beside_an_odd_axis_are_a_power_of_two(width: int):
    """A random program had three warps by default, which is an error."""

    def sums(x, out):
        for i in hl.grid(out.size(0)):
            total = x[0, :, :].sum(0)
            for j in hl.grid(x.size(0)):
                total = total + x[j, :, :].sum(0)
            out[i, :] = total

    config = default(sums, torch.empty(5, 16, width), torch.empty(7, width))
    assert config.num_warps in (1, 2, 4)
