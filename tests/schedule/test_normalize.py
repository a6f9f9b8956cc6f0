"""Normalisation: every Config in full, equal when the code is equal, and clear when it is wrong."""

from __future__ import annotations

import pytest
import torch

import tilesmith.language as hl
from tests.frontend.traced import trace_of
from tests.schedule import programs
from tests.specs import config_spec
from tilesmith.exc import InvalidConfig
from tilesmith.schedule.config import Config
from tilesmith.schedule.space.fragments import PowerOfTwoFragment
from tilesmith.targets import parse_target


def spec_of(function, target="cuda:90", tunables=None):
    return config_spec(function, parse_target(target), tunables)


def matmul_spec(target="cuda:90"):
    return spec_of(programs.matmul(), target)


BLOCKS = [64, 32, 16]


def test_full_form_of_a_short_config():
    assert dict(matmul_spec().normalize(Config(block_sizes=BLOCKS))) == {
        "block_sizes": [64, 32, 16],
        "loop_orders": [[0, 1]],
        "l2_groupings": [1],
        "range_unroll_factors": [0, 0],
        "range_num_stages": [0, 0],
        "range_multi_buffers": [None, None],
        "range_flattens": [None, None],
        "num_warps": 4,
        "num_stages": 1,
        "indexing": ["pointer", "pointer", "pointer"],
        "pid_type": "flat",
        "load_eviction_policies": ["", ""],
    }


def test_block_sizes_may_be_grouped_by_loop():
    spec = matmul_spec()
    assert spec.normalize({"block_sizes": [[64, 32], 16]}) == spec.normalize(
        {"block_sizes": BLOCKS}
    )
    with pytest.raises(InvalidConfig, match="has 2 entries"):
        spec.normalize({"block_sizes": [[64, 32]]})


def test_lists_have_one_entry_for_each_thing():
    labels = matmul_spec().lists
    assert [slot.label for slot in labels["block_sizes"]] == ["tile_m", "tile_n", "tile_k"]
    assert [slot.label for slot in labels["range_num_stages"]] == [
        "program loop over [tile_m, tile_n]",
        "loop over [tile_k]",
    ]
    assert [slot.label for slot in labels["indexing"]] == ["load of x", "load of y", "store of out"]


def test_lengths_with_two_top_level_loops():
    spec = spec_of(programs.gather())
    lengths = {key: len(slots) for key, slots in spec.lists.items()}
    assert lengths["block_sizes"] == 2
    assert lengths["loop_orders"] == lengths["l2_groupings"] == 0
    assert lengths["range_flattens"] == 3
    assert lengths["static_ranges"] == 1
    assert lengths["indexing"] == 4
    assert lengths["load_eviction_policies"] == 2


def test_loads_that_say_how_to_be_kept_have_no_entry():
    spec = spec_of(programs.split_k())
    assert [slot.label for slot in spec.lists["load_eviction_policies"]] == ["load of x"]
    assert [slot.label for slot in spec.lists["atomic_indexing"]] == ["atomic of out"]


@pytest.mark.parametrize(
    ("singular", "plural", "value"),
    [
        ("loop_order", "loop_orders", [1, 0]),
        ("l2_grouping", "l2_groupings", 8),
        ("range_unroll_factor", "range_unroll_factors", 0),
        ("range_num_stage", "range_num_stages", 0),
        ("range_flatten", "range_flattens", None),
    ],
)
def test_singular_spellings(singular, plural, value):
    spec = matmul_spec()
    given = {"block_sizes": BLOCKS, singular: value}
    assert spec.normalize(given) == spec.normalize({"block_sizes": BLOCKS, plural: [value]})


def test_singular_block_size():
    spec = spec_of(programs.softmax())
    assert spec.normalize(Config(block_size=8)).block_sizes == [8]


@pytest.mark.parametrize(
    ("chunk", "expected"),
    [(None, None), (1, 8), (4, 8), (8, 8), (512, 512), (2048, 2048), (4096, None), (1 << 20, None)],
)
def test_chunks_are_rounded_and_covering_ones_mean_the_whole_row(chunk, expected):
    spec = spec_of(programs.softmax(64, 2560))
    config = Config(block_sizes=[2], reduction_loops=[chunk])
    assert spec.normalize(config).reduction_loops == [expected]
    assert spec.normalize(Config(block_sizes=[2], reduction_loop=chunk)).reduction_loops == [
        expected
    ]


@pytest.mark.parametrize("chunk", [3, 0, -8, True, "all", 512.0])
def test_wrong_chunks(chunk):
    spec = spec_of(programs.softmax(64, 2560))
    with pytest.raises(InvalidConfig) as raised:
        spec.normalize(Config(block_sizes=[2], reduction_loops=[chunk]))
    assert str(raised.value) == (
        f"invalid config: reduction_loops[0] (the reduction over 2560) = {chunk!r}\n"
        "    = expected: None (the whole row at once) or a chunk size, a power of two of 8 or more"
    )


def test_rows_longer_than_any_tile_are_chunked_when_nothing_is_said():
    spec = spec_of(programs.softmax(64, (1 << 20) + 1))
    assert spec.normalize(Config(block_sizes=[2])).reduction_loops == [4096]
    with pytest.raises(InvalidConfig, match=r"lower block_sizes\[0\] .tile_m. or reduction_loops"):
        spec.normalize(Config(block_sizes=[1024], reduction_loops=[8192]))


@pytest.mark.parametrize("pid_type", ["persistent_blocked", "persistent_interleaved"])
def test_persistent_options_stay_with_persistent_programs(pid_type):
    given = Config(
        block_sizes=BLOCKS,
        pid_type=pid_type,
        num_sm_multiplier=2,
        maxnreg=128,
        range_flattens=[True],
    )
    config = matmul_spec().normalize(given)
    assert (config.num_sm_multiplier, config.maxnreg) == (2, 128)
    assert config.range_flattens == [True, None]


def test_options_without_effect_are_reset():
    spec = matmul_spec()
    config = spec.normalize(Config(block_sizes=BLOCKS, range_flattens=[True, True], maxnreg=None))
    assert config.range_flattens == [None, True]
    assert config == spec.normalize(Config(block_sizes=BLOCKS, range_flattens=[None, True]))


def test_options_of_a_static_loop_are_reset():
    spec = spec_of(programs.gather())
    config = Config(block_sizes=[16, 16], static_ranges=[True], range_unroll_factors=[0, 4])
    assert spec.normalize(config).range_unroll_factors == [0, 0, 0]
    config = config.updated(static_ranges=[False])
    assert spec.normalize(config).range_unroll_factors == [0, 4, 0]


def test_blocks_below_what_products_need_are_raised():
    assert matmul_spec().normalize(Config(block_sizes=[1, 2, 4])).block_sizes == [16, 16, 16]
    fp8 = spec_of(programs.matmul(dtype="f8e4m3"))
    assert fp8.normalize(Config(block_sizes=[1, 2, 4])).block_sizes == [16, 16, 32]


def test_blocks_may_exceed_the_extent():
    spec = spec_of(programs.pointwise(100, 100))
    assert spec.normalize(Config(block_sizes=[256, 512])).block_sizes == [256, 512]


@pytest.mark.parametrize(("outer", "inner", "clamped"), [(64, 128, 64), (64, 64, 64), (64, 8, 8)])
def test_inner_tiles_are_clamped_to_the_outer_block(outer, inner, clamped):
    spec = spec_of(programs.nested_tiles())
    assert spec.normalize(Config(block_sizes=[outer, inner])).block_sizes == [outer, clamped]


def test_inner_tiles_are_clamped_to_a_fixed_outer_block():
    spec = spec_of(programs.split_k(k_block=64))
    assert spec.normalize(Config(block_sizes=[16, 16, 256])).block_sizes == [16, 16, 64]


def test_flattened_grid_has_no_order_grouping_or_descriptors():
    spec = spec_of(programs.pointwise())
    given = Config(
        block_sizes=[16, 32], flatten_loops=[True], loop_orders=[[1, 0]], l2_groupings=[8],
        indexing="tensor_descriptor",
    )  # fmt: skip
    config = spec.normalize(given)
    assert config.flatten_loops == [True]
    assert (config.loop_orders, config.l2_groupings) == ([[0, 1]], [1])
    assert config.indexing == ["pointer"] * 3
    with pytest.raises(InvalidConfig, match=r"flatten_loops=\[True\] with pid_type='xyz'"):
        spec.normalize(given.updated(pid_type="xyz"))


def test_products_cannot_be_flattened():
    assert not matmul_spec().lists["flatten_loops"]


def test_indexing_for_all_accesses_at_once():
    config = matmul_spec().normalize(Config(block_sizes=BLOCKS, indexing="block_ptr"))
    assert config.indexing == ["block_ptr"] * 3


@pytest.mark.parametrize("target", ["cuda:80", "cuda:90", "hip:gfx942"])
@pytest.mark.parametrize("choice", ["pointer", "block_ptr", "tensor_descriptor"])
def test_every_indexing_is_valid_on_every_gpu(target, choice):
    config = Config(block_sizes=BLOCKS, indexing=[choice, "pointer", choice])
    assert matmul_spec(target).normalize(config).indexing == [choice, "pointer", choice]


def test_surplus_access_hints_are_dropped():
    given = Config(
        block_sizes=BLOCKS, indexing=["pointer"] * 6, load_eviction_policies=["", "last", "first"]
    )
    config = matmul_spec().normalize(given)
    assert config.indexing == ["pointer"] * 3
    assert config.load_eviction_policies == ["", "last"]


def test_surplus_neutral_entries_are_dropped():
    config = Config(
        block_sizes=[32], loop_orders=[[0, 1]], l2_groupings=[1], flatten_loops=[False],
        range_flattens=[None, None, None], range_num_stages=[0, 0], static_ranges=[False],
    )  # fmt: skip
    spec = spec_of(programs.softmax())
    assert spec.normalize(config) == spec.normalize(Config(block_sizes=[32]))


ELSEWHERE = {
    "waves_per_eu": 2,
    "matrix_instr_nonkdim": 16,
    "xcd_remap": True,
    "load_cache_modifiers": [".cg", ""],
    "store_cache_modifiers": [".wt"],
    "range_warp_specializes": [None, True],
    "epilogue_subtile": 2,
    "num_ctas": 1,
    "occupancy": 2,
    "advanced_controls_file": "",
}


def test_keys_of_other_targets_are_dropped():
    spec = matmul_spec()
    expected = spec.normalize(Config(block_sizes=BLOCKS))
    assert spec.normalize(Config(block_sizes=BLOCKS, **ELSEWHERE)) == expected  # pyright: ignore[reportArgumentType]


def test_keys_of_this_target_are_kept():
    amd = matmul_spec("hip:gfx942").normalize(Config(block_sizes=BLOCKS, maxnreg=64, **ELSEWHERE))  # pyright: ignore[reportArgumentType]
    assert (amd.waves_per_eu, amd.matrix_instr_nonkdim, amd.xcd_remap) == (2, 16, True)
    assert amd.load_cache_modifiers == [".cg", ""]
    assert amd.store_cache_modifiers == [".wt"]
    assert "maxnreg" not in amd
    blackwell = matmul_spec("cuda:100").normalize(Config(block_sizes=BLOCKS, **ELSEWHERE))  # pyright: ignore[reportArgumentType]
    assert blackwell.range_warp_specializes == [None, True]


def test_only_the_first_warp_specialised_loop_stays_and_is_not_unrolled():
    config = Config(
        block_sizes=BLOCKS, pid_type="persistent_blocked",
        range_warp_specializes=[True, True], range_unroll_factors=[2, 2],
    )  # fmt: skip
    config = matmul_spec("cuda:100").normalize(config)
    assert config.range_warp_specializes == [True, None]
    assert config.range_unroll_factors == [0, 2]


def test_user_tunables():
    spec = spec_of(programs.split_k(), tunables={"split_k": PowerOfTwoFragment(1, 256, 8)})
    assert spec.normalize(Config(block_sizes=BLOCKS))["split_k"] == 8
    assert spec.normalize(Config(block_sizes=BLOCKS, split_k=32))["split_k"] == 32  # pyright: ignore[reportCallIssue]
    assert spec.default_config()["split_k"] == 8
    assert "split_k" in [dimension.key for dimension in spec.dimensions()]


def test_barrier_needs_resident_programs():
    spec = spec_of(programs.with_barrier(programs.gather()))
    assert spec.default_config().pid_type == "persistent_blocked"


def inner_loop_spec(target):
    def kernel(x):
        out = torch.empty_like(x)
        for rows in hl.tile(x.size(0)):
            for columns, planes in hl.tile([x.size(1), x.size(2)]):
                out[rows, columns, planes] = x[rows, columns, planes] + 1
        return out

    return spec_of(trace_of(kernel, torch.empty(8, 8, 80)).function, target)


@pytest.mark.parametrize("target", ["cuda:90", "cpu:avx512"])
def test_static_ranges_of_tuned_loops(target):
    """Marks of a loop that the block sizes leave many turns have no effect."""
    spec = inner_loop_spec(target)
    few, many = ({"block_sizes": [4, 4, size]} for size in (16, 4))
    marked = spec.normalize(Config(**few, static_ranges=[True, True]))  # pyright: ignore[reportArgumentType]
    assert marked.static_ranges == ([True, True] if target == "cuda:90" else [])
    assert spec.normalize(Config(**few, static_ranges=[True])) == spec.normalize(Config(**few))  # pyright: ignore[reportArgumentType]
    assert spec.normalize(Config(**many, static_ranges=[True, True])) == spec.normalize(  # pyright: ignore[reportArgumentType]
        Config(**many)  # pyright: ignore[reportArgumentType]
    )
    with pytest.raises(InvalidConfig, match="static_ranges has 3 entries, the kernel needs 2"):
        spec.normalize(Config(**few, static_ranges=[True] * 3))  # pyright: ignore[reportArgumentType]


def test_a_file_of_controls_is_a_path():
    spec = matmul_spec()
    whole = spec.normalize({"block_sizes": BLOCKS, "advanced_controls_file": "a.bin"})
    assert whole == spec.normalize({"block_sizes": BLOCKS})
    with pytest.raises(InvalidConfig, match="advanced_controls_file"):
        spec.normalize({"block_sizes": BLOCKS, "advanced_controls_file": 123})


def waves(x):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        for u, v, w in hl.tile(x.size()[1:]):
            out[t, u, v, w] = x[t, u, v, w].sin()
    return out


def test_marks_of_inner_loops_to_flatten_are_taken_without_effect():
    spec = spec_of(trace_of(waves, torch.randn(8, 8, 8, 8)).function)
    plain = spec.normalize({"block_sizes": [4, 8, 1, 1]})
    assert spec.normalize({"block_sizes": [4, 8, 1, 1], "flatten_loops": [True]}) == plain
    with pytest.raises(InvalidConfig, match="flatten_loops has 2 entries"):
        spec.normalize({"block_sizes": [4, 8, 1, 1], "flatten_loops": [True, True]})
    with pytest.raises(InvalidConfig, match="flatten_loops has 1 entries"):
        matmul_spec().normalize({"block_sizes": BLOCKS, "flatten_loops": [True]})
