"""Counts of work and bytes agree with counts made by hand, whatever the block sizes."""

from __future__ import annotations

from math import ceil

import pytest
import torch

import tilesmith
import tilesmith.language as hl
from examples.attention import attention, causal_attention
from examples.embedding import embedding
from examples.jagged_mean import jagged_mean
from examples.mamba2_chunk_scan import mamba2_chunk_scan, random_scan_inputs
from examples.matmul import matmul
from examples.matmul_split_k import matmul_split_k
from examples.softmax import softmax, softmax_two_pass
from tests.schedule import programs
from tests.schedule.fact_kernels import dynamic_matmul, operands
from tilesmith.schedule.facts.collect import collect_facts
from tilesmith.schedule.facts.outline import FunctionOutline


def facts_of(kernel, *args):
    return kernel.bind(kernel.normalize_args(*args)).facts


@pytest.mark.parametrize("shape", [(1, 1, 1), (100, 37, 65), (256, 128, 512)])
def test_a_product_has_two_operations_per_multiply_add(shape):
    m, n, k = shape
    facts = facts_of(matmul, *operands(m, n, k))
    assert facts.flops == {"f16": 2 * m * n * k}
    assert facts.traffic.read == 2 * (m * k + k * n)
    assert facts.traffic.written == 2 * m * n


def test_operands_are_loaded_again_for_every_tile_of_the_other_side():
    m, n, k = 100, 200, 300
    x, y, out = facts_of(matmul, *operands(m, n, k)).accesses
    blocks = {"tile_m": 32, "tile_n": 64, "tile_k": 16}
    assert x.bytes_moved(blocks) == 2 * m * k * ceil(n / 64)
    assert y.bytes_moved(blocks) == 2 * k * n * ceil(m / 32)
    assert out.bytes_moved(blocks) == 2 * m * n
    assert x.bytes_moved() == x.distinct_bytes == 2 * m * k
    assert (x.reuse, y.reuse, out.reuse) == (n, m, 1)


def test_loads_know_what_they_are_for():
    x, y, out = facts_of(matmul, *operands(64, 64, 64)).accesses
    assert (x.purpose.sides, y.purpose.sides, out.purpose.sides) == (("lhs",), ("rhs",), ())
    row, _ = facts_of(softmax, torch.empty(10, 20)).accesses
    assert len(row.purpose.reduced) == 2
    assert row.purpose.is_reread
    first, second, _ = facts_of(softmax_two_pass, torch.empty(10, 20)).accesses
    assert len(first.purpose.reduced) == 2
    assert second.purpose.reduced == ()
    assert second.purpose.num_stores == 1


def test_a_loop_to_the_end_of_a_whole_tile_ranges_over_the_axis():
    inputs = random_scan_inputs((1, 4, 2, 512), 128, (64, 32), torch.bfloat16)
    entering, own = facts_of(mamba2_chunk_scan, *inputs).matmuls
    assert entering.k.extent == 32
    assert (own.k.extent, own.k.length.share) == (128, 0.5)


def test_split_products_count_every_element_once():
    # Blocks of 32 do not divide K: the last one is shorter.
    facts = facts_of(matmul_split_k, torch.empty(64, 1000), torch.empty(1000, 48))
    assert facts.flops == {"f32": 2 * 64 * 48 * 1000}
    x = facts.accesses[0]
    assert x.distinct == 64 * 1000
    assert x.reuse == 48


@pytest.mark.parametrize(("kernel", "share"), [(attention, 1.0), (causal_attention, 0.5)])
def test_a_causal_loop_does_half_of_the_work(kernel, share):
    q = torch.empty(3, 128, 64, dtype=torch.bfloat16)
    facts = facts_of(kernel, q, q, q)
    assert facts.flops == {"bf16": 4 * 3 * 128 * 128 * 64 * share}
    assert facts.bytes == 4 * q.numel() * 2


def test_work_once_per_tile_depends_on_the_tile():
    q = torch.empty(3, 128, 64, dtype=torch.bfloat16)
    facts = facts_of(attention, q, q, q)
    scores, rows = 3 * 128 * 128, 3 * 128
    # One exponential for each score, and one for each row and tile of keys.
    assert facts.work.total("transcendental") == scores + rows
    sized = facts.work.total("transcendental", {"tile_n": 48})
    assert sized == scores + rows * ceil(128 / 48)


def test_two_passes_read_twice_but_need_the_row_once():
    facts = facts_of(softmax_two_pass, torch.empty(64, 200))
    assert facts.traffic.read == facts.traffic.written == 64 * 200 * 4
    assert sum(fact.bytes_moved() for fact in facts.accesses) == 3 * 64 * 200 * 4  # pyright: ignore[reportArgumentType, reportCallIssue]


def test_gathered_rows_are_at_most_the_table():
    few = facts_of(embedding, torch.zeros(5, dtype=torch.int64), torch.empty(1000, 64))
    many = facts_of(embedding, torch.zeros(3000, dtype=torch.int64), torch.empty(1000, 64))
    assert [facts.accesses[1].distinct for facts in (few, many)] == [5 * 64, 1000 * 64]


def test_expanded_dimensions_take_no_memory():
    facts = facts_of(softmax, torch.empty(1, 256).expand(64, 256))
    assert facts.traffic.read == 256 * 4


def test_a_length_that_is_loaded_is_unknown_until_given():
    offsets = torch.tensor([0, 3, 7, 9])
    facts = facts_of(jagged_mean, torch.empty(9, 40), offsets, torch.tensor([40, 20, 30]))
    assert facts.work.total("elementwise") is None
    assert facts.accesses[3].bytes_moved() is None
    # All of the values at most, whatever the lengths.
    assert facts.accesses[3].distinct == 9 * 40
    known = facts.with_sizes({"longest": 4})
    assert known.accesses[3].bytes_moved() == 3 * 4 * 40 * 4


def test_runtime_sizes_are_those_of_the_call_or_those_given():
    bound = dynamic_matmul().bind(operands(64, 128, 256))
    assert bound.config_spec.facts.flops is None
    facts = bound.facts
    assert facts.flops == {"f16": 2 * 64 * 128 * 256}
    assert [axis.extent for axis in facts.matmuls[0].axes] == [64, 128, 256]
    assert facts.accesses[0].vector_width == 8
    larger = facts.with_sizes({"m": 1024})
    assert larger.flops == {"f16": 2 * 1024 * 128 * 256}
    assert larger.with_sizes({"m": 64}) == facts


@pytest.mark.parametrize(
    ("width", "dtype", "vector"),
    [(64, torch.float16, 8), (64, torch.float32, 4), (66, torch.float16, 2), (65, torch.int8, 1)],
)
def test_vectors_are_as_wide_as_rows_allow(width, dtype, vector):
    load = facts_of(softmax_or_copy, torch.empty(8, width, dtype=dtype)).accesses[0]
    assert load.vector_width == vector


@tilesmith.kernel(static_shapes=True)
def softmax_or_copy(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile_m, tile_n in hl.tile(x.size()):
        out[tile_m, tile_n] = x[tile_m, tile_n]
    return out


@tilesmith.kernel(static_shapes=True)
def shifted_difference(x: torch.Tensor, shift: int) -> torch.Tensor:
    m, n = x.size()
    out = torch.empty([m, n - 1], dtype=x.dtype, device=x.device)
    for tile_m, tile_n in hl.tile([m, n - 1]):
        out[tile_m, tile_n] = x[tile_m, tile_n.index + shift] - x[tile_m, tile_n]
    return out


def test_shifted_and_strided_rows_go_one_by_one():
    shifted, plain, _ = facts_of(shifted_difference, torch.empty(8, 64), 1).accesses
    assert shifted.vector_width == 1
    assert plain.vector_width == 4
    turned, _ = facts_of(softmax_or_copy, torch.empty(64, 8).t()).accesses
    assert turned.contiguous_block == "tile_m"
    assert turned.vector_width == 4
    apart, _ = facts_of(softmax_or_copy, torch.empty(8, 128)[:, ::2]).accesses
    assert apart.contiguous_block is None
    assert apart.vector_width == 1


def test_accumulators_are_the_tiles_that_loops_carry():
    q = torch.empty(3, 128, 64, dtype=torch.bfloat16)
    facts = facts_of(attention, q, q, q).accumulators
    assert [fact.name for fact in facts] == ["peak", "total", "acc"]
    assert [fact.blocks for fact in facts] == [
        ("tile_b", "tile_m"),
        ("tile_b", "tile_m"),
        ("tile_b", "tile_m", None),
    ]
    assert {(fact.itemsize, fact.loop) for fact in facts} == {(4, ("tile_n",))}
    assert facts_of(softmax, torch.empty(8, 8)).accumulators == ()


def test_loops_inside_outer_tiles_walk_the_outer_axis():
    facts = collect_facts(FunctionOutline(programs.nested_tiles()))
    load = facts.accesses[0]
    assert load.moved.at({"outer": 64, "inner": 8}) == load.moved.at() == 1 << 16
    assert load.distinct == 1 << 16
