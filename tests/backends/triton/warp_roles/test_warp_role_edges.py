"""Beginnings and ends of tiles: quotients by a reciprocal, stores nobody waits for, rounds."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch

import tilesmith
import tilesmith.language as hl
from examples.attention import attention, causal_attention
from examples.attention_backward import key_value_gradients
from examples.fp8_attention import FP8, fp8_attention
from tests.backends.triton.warp_roles.gluon_simulator import Simulation
from tests.backends.triton.warp_roles.test_warp_role_simulation import check, config
from tests.backends.triton.warp_roles.warp_role_modules import emit
from tests.device.warp_role_cases import KERNELS, Case, make_args

LOOPED = "persistent_interleaved"


def lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines()]


@tilesmith.kernel(static_shapes=True)
def shares(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Products as shares of the largest one of each row."""
    out = torch.empty([x.size(0), y.size(1)], dtype=torch.float32, device=x.device)
    for tile_m, tile_n in hl.tile([x.size(0), y.size(1)]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, tile_n])
        out[tile_m, tile_n] = acc / acc.amax(-1)[:, None]
    return out


def test_rows_are_divided_by_way_of_a_reciprocal():
    tile = torch.randn(2, 128, 64)
    x, y = tile[0].bfloat16(), tile[1, :64].bfloat16()
    text = emit(shares, (x, y), block_sizes=[128, 64, 64], num_warps=8)
    assert "_divide(" in text
    assert "div_rn" not in text
    product = x.double() @ y.double()
    wanted = product / product.amax(-1)[:, None]
    check(Simulation(text)["shares"](x, y), wanted, 64)
    # Where bits are lost before or after it, the product is enough.
    narrow = [x.to(FP8) for x in (tile, tile, tile.mT.contiguous())]
    coarse = emit(fp8_attention, narrow, block_sizes=[128, 64], num_warps=8)
    rounded = emit(attention, (tile.bfloat16(),) * 3, block_sizes=[1, 128, 64], num_warps=8)
    for text in (coarse, rounded):
        assert "div = acc * _inverse(" in text
        assert "def _divide" not in text


@tilesmith.kernel(static_shapes=True)
def divided(x: torch.Tensor, y: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0), y.size(1)], dtype=torch.float32, device=x.device)
    for tile_m, tile_n in hl.tile([x.size(0), y.size(1)]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, tile_n])
        out[tile_m, tile_n] = acc / by[tile_m, tile_n]
    return out


def test_a_tile_by_a_tile_is_divided_as_before():
    x, y = torch.zeros(128, 64).bfloat16(), torch.zeros(64, 64).bfloat16()
    text = emit(divided, (x, y, torch.ones(128, 64)), block_sizes=[128, 64, 64], num_warps=8)
    assert "gl.div_rn(" in text
    assert "_inverse" not in text


def fused(x, y, z):
    """Rounded once: products of fp32 are exact in fp64."""
    return (x.double() * y.double() + z.double()).float()


@pytest.mark.parametrize("last_bits", [1, 300, 5000, 1 << 23])
def test_a_quotient_has_the_bits_of_a_division(last_bits):
    # The steps of ``_divide``; divisors close to a power of two are the hard ones.
    torch.manual_seed(last_bits)
    count = 1 << 18
    for ends in (False, True):
        moved = torch.randint(0, last_bits, (count,)).float() * 2.0**-23
        by = 2.0 - 2.0**-23 - moved if ends else 1.0 + moved
        x = (torch.rand(count) * 2 - 1) * torch.exp2(torch.randint(-30, 30, (count,)).float())
        inverse = (1.0 / by.double()).float()
        near = x * inverse
        left = fused(-near, by, x)
        assert torch.equal(fused(left, inverse, near), x / by)


def test_quotients_that_are_not_finite_are_those_of_a_division():
    x = torch.tensor([0.0, 1.0, -1.0, math.inf, math.nan, 1.0, math.inf])
    by = torch.tensor([0.0, 0.0, 0.0, 2.0, 1.0, math.inf, math.inf])
    inverse = 1.0 / by
    near = x * inverse
    left = fused(fused(-near, by, x), inverse, near)
    found = torch.where(left.isfinite(), left, near)
    assert torch.equal(found.nan_to_num(7.0), (x / by).nan_to_num(7.0))


def test_queries_stay_in_registers_where_there_are_enough():
    def names_operand(kernel, head_dim, dtype=torch.bfloat16):
        tile = torch.empty(8, 1024, head_dim, dtype=dtype, device="meta")
        args = (tile, tile, tile.mT.contiguous() if dtype == FP8 else tile)
        bound = kernel.bind(kernel.normalize_args(*args), target="cuda:90")
        return "q_operand" in bound.to_triton_code(bound.default_config(), target="cuda:90")

    assert names_operand(attention, 128)
    # Two loops, with masks and without, have none left; nor have wide heads and three groups.
    assert not names_operand(causal_attention, 128)
    assert not names_operand(attention, 256)
    assert not names_operand(attention, 64)
    assert names_operand(fp8_attention, 64, FP8)
    assert names_operand(fp8_attention, 128, FP8)
    assert not names_operand(fp8_attention, 256, FP8)


def test_programs_that_walk_tiles_do_not_wait_for_stores():
    tile = (torch.zeros(2, 256, 64).bfloat16(),) * 3
    sizes = {"block_sizes": [1, 128, 64], "num_warps": 8}
    text = lines(emit(attention, tile, **sizes, pid_type=LOOPED))
    stored = text.index("tma.async_copy_shared_to_global(")
    waits = [i for i, line in enumerate(text) if line == "tma.store_wait(0)"]
    # Before the buffer is written again, and when all is done.
    assert len(waits) == 2
    assert text[waits[0] + 1].startswith("out_staged.index(group)")
    assert waits[0] < stored < waits[1]
    assert text[waits[1] - 1] == "piece += 1"
    # A program of one tile has nothing to do meanwhile, and needs no buffer.
    flat = lines(emit(attention, tile, **sizes, pid_type="flat"))
    assert "out_staged" not in "".join(flat)
    assert flat.count("tma.store_wait(0)") == 1


def test_the_last_of_two_results_gets_the_buffer():
    tile, row = torch.zeros(2, 256, 64).bfloat16(), torch.zeros(2, 256)
    args = (tile, tile, tile, tile, row, row, False)
    text = emit(key_value_gradients, args, block_sizes=[1, 128, 64], num_warps=8, pid_type=LOOPED)
    assert "grad_v_staged.index(group)" in text
    assert "grad_k_staged" not in text


@pytest.mark.parametrize("programs", [1, 3, 5])
@pytest.mark.parametrize("is_causal", [False, True])
def test_walking_programs_are_right(programs, is_causal):
    kind = "causal" if is_causal else "plain"
    kernel, exact = KERNELS[kind]
    args = make_args(Case(kind, 320, 16), "cpu")
    text = emit(kernel, args, **config(2, LOOPED))
    assert ("_next_tile(" in text) == is_causal
    run = Simulation(text, num_sms=programs)[kernel.fn.__name__]
    check(run(*args), exact(*args), 320)


@pytest.mark.parametrize(("tiles", "programs"), [(1024, 132), (7, 3), (6, 3), (2, 5), (264, 132)])
def test_every_other_round_goes_backwards(tiles, programs):
    args = (torch.zeros(2, 256, 16).bfloat16(),) * 3
    module = Simulation(emit(causal_attention, args, **config(2, LOOPED)))
    taken = [module["_next_tile"](tile, tiles, programs) for tile in range(tiles)]
    assert sorted(taken) == list(range(tiles))
    # Each program stays in the round that it is in.
    assert all(old // programs == new // programs for old, new in enumerate(taken))
    rounds = [taken[first : first + programs] for first in range(0, tiles, programs)]
    ways = [taken == sorted(taken) for taken in rounds if len(taken) > 1]
    assert all(a != b for a, b in pairwise(ways))


def test_programs_end_together_where_tiles_differ_in_length():
    args = (torch.zeros(2, 256, 16).bfloat16(),) * 3
    module = Simulation(emit(causal_attention, args, **config(2, LOOPED)))
    rows, programs = 8, 132
    # Tiles of a head one after the other, the longest first, and what each takes besides.
    lengths = [rows - tile % rows + 0.6 for tile in range(128 * rows)]
    loads = [0.0] * programs
    for tile in range(len(lengths)):
        loads[tile % programs] += lengths[module["_next_tile"](tile, len(lengths), programs)]
    assert max(loads) <= 1.04 * sum(lengths) / programs
    in_order = [sum(lengths[program::programs]) for program in range(programs)]
    assert max(in_order) >= 1.3 * sum(lengths) / programs
