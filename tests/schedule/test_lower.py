"""From a Config to a Schedule: sizes, padding, loops, grids and accesses, each under its slot."""

from __future__ import annotations

from typing import Any

import pytest

from tests.lowering import schedule_function
from tests.schedule import programs
from tests.specs import config_spec
from tilesmith.ir.verifier import verify_function
from tilesmith.schedule.config import Config
from tilesmith.schedule.facts.outline import FunctionOutline
from tilesmith.schedule.schedule import AccessOptions, GridOptions, LoopOptions
from tilesmith.targets import parse_target


def lower(function, target="cuda:90", **values):
    spec = config_spec(function, parse_target(target))
    return schedule_function(function, spec, Config(**values))[1]


def test_matmul_schedule():
    schedule = lower(
        programs.matmul(),
        block_sizes=[128, 64, 32], loop_orders=[[1, 0]], l2_groupings=[4], num_warps=8,
        num_stages=3,
        range_unroll_factors=[0, 2], range_num_stages=[0, 3], range_multi_buffers=[None, False],
        load_eviction_policies=["first", "last"],
    )  # fmt: skip
    assert schedule.symbols == {"tile_m": 128, "tile_n": 64, "tile_k": 32}
    assert schedule.padded == {}
    assert schedule.grids == {0: GridOptions((1, 0), 4)}
    assert schedule.loops == {0: LoopOptions((0,), 2, 3, False)}
    assert schedule.accesses == {
        0: AccessOptions("pointer", "first"),
        1: AccessOptions("pointer", "last"),
        2: AccessOptions("pointer"),
    }
    assert (schedule.num_warps, schedule.num_stages, schedule.pid_type) == (8, 3, "flat")
    assert schedule.persistent_loop == LoopOptions()


def test_defaults_resolve_for_every_program_and_target():
    for make in programs.ALL.values():
        for target in ("cuda:80", "cuda:90", "hip:gfx942", "cpu"):
            function = make()
            spec = config_spec(function, parse_target(target))
            lowered, schedule = schedule_function(function, spec, spec.default_config())
            assert {block.name for block in lowered.blocks} <= schedule.symbols.keys()
            assert set(schedule.grids) == {grid.slot for grid in spec.outline.grids}
            assert set(schedule.loops) >= {loop.slot for loop in spec.outline.loops}
            for value in spec.outline.tile_values:
                for size in schedule.physical_shape(value.tile.shape):
                    assert size & (size - 1) == 0 or target == "cpu"


@pytest.mark.parametrize(("width", "padded"), [(1, None), (2, 16), (16, 16), (17, 32), (80, 128)])
def test_constants_are_padded_and_contracted_ones_to_sixteen(width, padded):
    schedule = lower(programs.attention(2, 100, width), block_sizes=[32, 32])
    assert schedule.padded.get(width) == padded


@pytest.mark.parametrize(("width", "padded"), [(2, 2), (3, 4), (200, 256), (256, 256)])
def test_other_constants_are_padded_to_a_power_of_two(width, padded):
    assert lower(programs.softmax(10, width), block_sizes=[4]).padded == {width: padded}


def test_fixed_blocks_have_their_size():
    schedule = lower(programs.split_k(k_block=512), block_sizes=[16, 32, 64])
    assert schedule.symbols == {"tile_m": 16, "tile_n": 32, "outer_k": 512, "inner_k": 64}


def test_inner_blocks_are_clamped():
    schedule = lower(programs.nested_tiles(), block_sizes=[64, 256])
    assert schedule.symbols == {"outer": 64, "inner": 64}


def test_persistent_loop_takes_the_first_range_entry():
    schedule = lower(
        programs.matmul(),
        block_sizes=[64, 64, 64], pid_type="persistent_interleaved", num_sm_multiplier=2,
        maxnreg=128,
        range_flattens=[True, None], range_num_stages=[2, 0],
    )  # fmt: skip
    assert schedule.persistent_loop == LoopOptions(num_stages=2, flatten=True)
    assert (schedule.num_sm_multiplier, schedule.maxnreg) == (2, 128)
    assert schedule.pid_type == "persistent_interleaved"


def test_ordered_loops_are_not_pipelined():
    schedule = lower(programs.nested_tiles(), block_sizes=[64, 32], range_num_stages=[0, 4])
    assert schedule.loops[0].num_stages == 1


def test_short_loop_can_be_static():
    schedule = lower(programs.gather(), block_sizes=[32, 32], static_ranges=[True])
    assert schedule.loops[0] == LoopOptions((0,), is_static=True)
    assert not lower(programs.gather(), block_sizes=[32, 32]).loops[0].is_static


def test_descriptors_drop_loop_stages_and_unrolling():
    values: dict[str, Any] = {
        "block_sizes": [64, 64, 64],
        "range_unroll_factors": [0, 2],
        "range_num_stages": [0, 3],
        "num_stages": 2,
    }
    with_pointers = lower(programs.matmul(), **values).loops[0]
    assert (with_pointers.unroll_factor, with_pointers.num_stages) == (2, 3)
    indexing = ["pointer", "tensor_descriptor", "pointer"]
    with_descriptors = lower(programs.matmul(), indexing=indexing, **values).loops[0]
    assert (with_descriptors.unroll_factor, with_descriptors.num_stages) == (0, 0)


def test_explicit_evictions_shift_the_list():
    schedule = lower(programs.split_k(), block_sizes=[16, 16, 16], load_eviction_policies=["last"])
    assert schedule.accesses[0].eviction == "last"
    assert schedule.accesses[1].eviction == ""


def test_amd_options():
    schedule = lower(
        programs.matmul(), "hip:gfx942",
        block_sizes=[64, 64, 64], waves_per_eu=2, matrix_instr_nonkdim=16,
        load_cache_modifiers=["", ".cg"], store_cache_modifiers=[".wt"],
    )  # fmt: skip
    assert schedule.backend_options == {
        "waves_per_eu": 2,
        "matrix_instr_nonkdim": 16,
        "fast_math": False,
        "output_origin_lines": True,
        "is_verified": True,
        "do_not_specialize": False,
    }
    modifiers = [schedule.accesses[slot].cache_modifier for slot in range(3)]
    assert modifiers == ["", ".cg", ".wt"]


def test_atomics_have_their_own_slots():
    schedule = lower(
        programs.split_k(), block_sizes=[16, 16, 16], atomic_indexing=["tensor_descriptor"],
        indexing=["pointer", "block_ptr"],
    )  # fmt: skip
    assert schedule.atomics == {0: AccessOptions("tensor_descriptor")}
    assert schedule.accesses[1].indexing == "block_ptr"


def test_rolled_reduction_has_a_block_of_its_own():
    function = programs.softmax(100, 2500)
    spec = config_spec(function, parse_target("cuda:90"))
    lowered, schedule = schedule_function(
        function, spec, Config(block_sizes=[2], reduction_loops=[512])
    )
    verify_function(lowered)
    assert schedule.symbols == {"tile_m": 2, "chunk": 512}
    assert schedule.padded == {}
    assert [loop.blocks for loop in FunctionOutline(lowered).loops] == [("chunk",)] * 3
    assert {op.slot for op in FunctionOutline(lowered).accesses} == {0, 1}


def test_resident_reduction_leaves_the_function_alone():
    function = programs.softmax(100, 2500)
    spec = config_spec(function, parse_target("cuda:90"))
    lowered, schedule = schedule_function(function, spec, Config(block_sizes=[2]))
    assert lowered is function
    assert schedule.padded == {2500: 4096}


def test_flattened_grid_has_one_axis_as_large_as_all():
    function = programs.pointwise(100, 300)
    spec = config_spec(function, parse_target("cuda:90"))
    lowered, schedule = schedule_function(
        function, spec, Config(block_sizes=[16, 32], flatten_loops=[True])
    )
    verify_function(lowered)
    (grid,) = FunctionOutline(lowered).grids
    (block,) = grid.blocks
    assert schedule.symbols[block] == 512
    assert schedule.grids == {0: GridOptions((0,))}


def test_reserved_multiprocessors_are_passed_on():
    function = programs.matmul()
    spec = config_spec(function, parse_target("cuda:90"))
    _, schedule = schedule_function(function, spec, spec.default_config(), reserved_sms=8)
    assert schedule.reserved_sms == 8
