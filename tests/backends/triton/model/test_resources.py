"""The closed-form resource gates against what Triton 3.6 compiled for sm_90 (fp16, unmasked)."""

from __future__ import annotations

import pytest
import torch

import tilesmith
import tilesmith.language as hl
from tests.schedule import programs
from tests.specs import config_spec
from tilesmith.schedule.config import Config
from tilesmith.targets import parse_target

# M, N, K blocks, warps, stages; bytes of shared memory; whether it built without spilling.
MEASURED = [
    (64, 64, 32, 4, 3, 24576, True),
    (64, 64, 64, 4, 3, 49152, True),
    (128, 64, 64, 4, 3, 73728, True),
    (128, 128, 32, 4, 4, 65536, True),
    (128, 128, 64, 4, 3, 98304, True),
    (128, 128, 64, 8, 3, 98304, True),
    (128, 128, 64, 8, 4, 131072, True),
    (128, 256, 64, 8, 3, 147456, True),
    (128, 256, 64, 8, 4, 196608, True),
    (256, 128, 64, 8, 3, 147456, True),
    (256, 128, 32, 8, 4, 98304, True),
    (256, 256, 64, 8, 3, 196608, False),
    (256, 256, 64, 16, 3, 196608, False),
    (128, 256, 128, 8, 3, 294912, False),
    (128, 128, 64, 2, 3, 65536, False),
    (64, 256, 64, 4, 4, 163840, True),
]


@pytest.mark.parametrize("row", MEASURED, ids=str)
def test_gates_agree_with_compiled_kernels(row):
    bm, bn, bk, warps, stages, shared, is_feasible = row
    spec = config_spec(programs.matmul(4096, 4096, 4096, "f16"), parse_target("cuda:90"))
    use = spec.resources(
        spec.normalize(Config(block_sizes=[bm, bn, bk], num_warps=warps, num_stages=stages))
    )
    assert use.shared_bytes == shared
    assert use.fits == is_feasible


def test_older_gpus_need_one_buffer_less():
    spec = config_spec(programs.matmul(4096, 4096, 4096, "f16"), parse_target("cuda:80"))
    config = Config(block_sizes=[128, 128, 64], num_warps=8, num_stages=3)
    assert spec.resources(spec.normalize(config)).shared_bytes == 65536


def test_attention_keeps_the_query_tile_and_a_ring_of_keys_and_values():
    config = Config(block_sizes=[128, 64], num_warps=8, num_stages=3)
    for target, shared in (("cuda:90", 131072), ("cuda:80", 98304)):
        spec = config_spec(programs.attention(width=128, dtype="f16"), parse_target(target))
        assert spec.resources(spec.normalize(config)).shared_bytes == shared


def test_stages_of_a_loop_go_before_those_of_the_kernel():
    spec = config_spec(programs.matmul(4096, 4096, 4096, "f16"), parse_target("cuda:90"))
    config = Config(block_sizes=[128, 128, 64], num_warps=8, num_stages=1, range_num_stages=[0, 4])
    assert spec.resources(spec.normalize(config)).shared_bytes == 131072


def test_unrolled_loops_hold_a_ring_for_each_copy():
    spec = config_spec(programs.matmul_row_norm(8192, 512, 512), parse_target("cuda:90"))
    config = Config(
        block_sizes=[16, 32], num_warps=2, range_num_stages=[0, 4], range_unroll_factors=[0, 2]
    )
    assert spec.resources(spec.normalize(config)).shared_bytes == 202752


def test_loops_with_their_own_stages_buffer_all_loads():
    spec = config_spec(programs.row_sum_by_tiles(), parse_target("cuda:90"))
    config = Config(block_sizes=[512, 16], num_warps=2, range_num_stages=[0, 4])
    assert spec.resources(spec.normalize(config)).shared_bytes == 98304
    config = config.updated(range_num_stages=[0, 0], num_stages=4)
    assert spec.resources(spec.normalize(config)).shared_bytes == 0


def test_program_loop_with_stages_buffers_loads():
    spec = config_spec(programs.data_dependent(), parse_target("cuda:90"))
    config = Config(block_sizes=[512], range_num_stages=[2], range_unroll_factors=[3])
    assert spec.resources(spec.normalize(config)).shared_bytes == 6144


def test_descriptors_copy_through_shared_memory():
    spec = config_spec(programs.pointwise(), parse_target("cuda:90"))
    config = Config(block_sizes=[32, 256], indexing=["tensor_descriptor", "pointer", "pointer"])
    assert spec.resources(spec.normalize(config)).shared_bytes == 32768
    older = config_spec(programs.pointwise(), parse_target("cuda:80"))
    assert older.resources(older.normalize(config)).shared_bytes == 0


def test_flattened_program_loop_keeps_the_query_in_the_ring():
    spec = config_spec(programs.attention(width=128), parse_target("cuda:90"))
    config = Config(
        block_sizes=[64, 128], num_warps=8, num_stages=3, pid_type="persistent_blocked",
        range_flattens=[True, None],
    )  # fmt: skip
    # 3 query tiles, 3 tiles each of keys and values, and the output being stored.
    assert spec.resources(spec.normalize(config)).shared_bytes == 3 * 16384 + 6 * 32768 + 16384


def test_long_exact_products_are_refused():
    spec = config_spec(programs.matmul(4096, 4096, 4096, "f32"), parse_target("cuda:90"))
    use = spec.resources(spec.normalize(Config(block_sizes=[128, 128, 128], num_warps=8)))
    assert use.straight.multiplied == 128 * 128 * 128 // 256
    assert not use.fits


# Offline builds for an H200: bytes spilled by a product of 4096x512x1024 words, with Triton 3.6.
SPILLED = {
    ((64, 64, 32), 4, 0): 0,
    ((64, 128, 64), 8, 0): 0,
    ((128, 64, 32), 4, 0): 0,
    ((16, 256, 64), 4, 0): 0,
    ((32, 128, 16), 4, 4): 0,
    ((64, 128, 128), 8, 0): 628,
    ((128, 64, 64), 4, 0): 1520,
    ((64, 128, 64), 4, 0): 1408,
    ((128, 128, 32), 4, 0): 244,
    ((16, 128, 128), 8, 4): 416,
    ((128, 32, 128), 8, 4): 5496,
}


@pytest.mark.parametrize(("blocks", "warps", "unroll"), SPILLED)
def test_exact_products_that_spill_are_refused(blocks, warps, unroll):
    spec = config_spec(programs.matmul(4096, 1024, 512, "f32"), parse_target("cuda:90"))
    config = Config(
        block_sizes=[*blocks], num_warps=warps, num_stages=1, range_unroll_factors=[0, unroll]
    )
    use = spec.resources(spec.normalize(config))
    assert use.fits == (SPILLED[blocks, warps, unroll] == 0)


def test_elements_that_a_thread_accesses_are_limited():
    spec = config_spec(programs.matmul(4096, 4096, 4096), parse_target("cuda:90"))
    config = Config(block_sizes=[16, 32, 1024], num_warps=1, range_unroll_factors=[0, 3])
    found = spec.feasibility(config)
    assert found == "each thread would load and store 4624 elements one by one"
    through_descriptors = config.updated(
        indexing=["tensor_descriptor", "tensor_descriptor", "pointer"], range_unroll_factors=[0, 0]
    )
    assert spec.resources(spec.normalize(through_descriptors)).straight.accessed == 16 * 32 // 32


@tilesmith.kernel
def updates_in_turns(x: torch.Tensor, out: torch.Tensor, sums: torch.Tensor) -> torch.Tensor:
    for tile in hl.tile(x.size(0)):
        for part in hl.tile(x.size(1)):
            for turn in hl.grid(3):
                out[tile, part] = x[tile, part] + turn
                hl.atomic_add(sums, [tile, part], 1.0 * x[tile, part])
    return out


@pytest.mark.parametrize(
    ("static", "unroll", "copies"), [(False, 0, 1), (True, 0, 3), (False, 4, 4), (True, 4, 12)]
)
def test_all_that_is_written_out_counts(static: bool, unroll: int, copies: int):
    """Stores, atomics and turns of static loops too: of random programs such took 17 to 34 s."""
    args = tuple(torch.empty(256, 256) for _ in range(3))
    spec = updates_in_turns.bind(args, target="cuda:90").config_spec
    config = spec.normalize(
        Config(
            block_sizes=[64, 128],
            num_warps=4,
            static_ranges=[static],
            range_unroll_factors=[0, unroll, 0],
            indexing=["pointer"] * 3,
        )
    )
    use = spec.resources(config)
    assert use.straight.accessed == copies * 3 * 64, "a load, a store, an atomic"
    assert use.fits == (copies * 192 <= 2048)
    fitting = spec.fit(config)
    assert spec.resources(fitting).fits
    assert fitting["block_sizes"] == [64, 128], "fewer copies before smaller tiles"


def test_rows_in_registers_are_shared_by_all_threads():
    spec = config_spec(programs.softmax(128, 16384), parse_target("cuda:90"))
    few = spec.resources(spec.normalize(Config(block_sizes=[1], num_warps=1)))
    many = spec.resources(spec.normalize(Config(block_sizes=[1], num_warps=16)))
    assert not few.fits
    assert many.fits
