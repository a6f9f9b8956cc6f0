"""What is wrong with a Config is said with its place, what was expected and a remedy."""

from __future__ import annotations

import pytest

from tests.schedule import programs
from tests.schedule.test_normalize import BLOCKS, matmul_spec, spec_of
from tilesmith.exc import (
    BarrierRequiresPersistent,
    InvalidConfig,
    TunableNameConflict,
)
from tilesmith.schedule.config import KEYS, Config
from tilesmith.schedule.space.fragments import EnumFragment, PowerOfTwoFragment

# What is wrong, and the exact words.
ERRORS = [
    (
        {"block_sizes": [64, 32]},
        "invalid config: block_sizes has 2 entries, the kernel needs 3\n"
        "    = expected: one entry for each of tile_m, tile_n, tile_k\n"
        "    = fix: list them all: Config(block_sizes=[...])",
    ),
    (
        {},
        "invalid config: block_sizes has 0 entries, the kernel needs 3\n"
        "    = expected: one entry for each of tile_m, tile_n, tile_k\n"
        "    = fix: list them all: Config(block_sizes=[...])",
    ),
    (
        {"block_sizes": [64, 32, 16, 8]},
        "invalid config: block_sizes has 4 entries, the kernel needs 3\n"
        "    = expected: one entry for each of tile_m, tile_n, tile_k\n"
        "    = fix: keep the first 3 entries",
    ),
    (
        {"block_sizes": [64, 33, 16]},
        "invalid config: block_sizes[1] (tile_n) = 33\n    = expected: a power of two",
    ),
    (
        {"block_sizes": 64},
        "invalid config: block_sizes = 64\n    = expected: a list of 3 entries",
    ),
    (
        {"block_sizes": BLOCKS, "num_warps": 3},
        "invalid config: num_warps = 3\n    = expected: a power of two from 1 to 32",
    ),
    (
        {"block_sizes": BLOCKS, "num_stages": 99},
        "invalid config: num_stages = 99\n    = expected: an integer from 1 to 8",
    ),
    (
        {"block_sizes": BLOCKS, "indexing": "tensor_descripter"},
        "invalid config: indexing[0] (load of x) = 'tensor_descripter'\n"
        "    = expected: one of 'pointer', 'tensor_descriptor', 'block_ptr'\n"
        "    = fix: did you mean 'tensor_descriptor'?",
    ),
    (
        {"block_sizes": BLOCKS, "load_eviction_policies": ["", "evict_last"]},
        "invalid config: load_eviction_policies[1] (load of y) = 'evict_last'\n"
        "    = expected: one of '', 'first', 'last'\n"
        "    = fix: did you mean 'last'?",
    ),
    (
        {"block_sizes": BLOCKS, "loop_orders": [[0, 2]]},
        "invalid config: loop_orders[0] (program loop over [tile_m, tile_n]) = [0, 2]\n"
        "    = expected: a permutation of [0, 1]",
    ),
    (
        {"block_sizes": BLOCKS, "flatten_loops": [True]},
        "invalid config: flatten_loops has 1 entries, the kernel needs 0\n"
        "    = expected: one entry for each of nothing: this kernel has no such entries\n"
        "    = fix: leave out flatten_loops",
    ),
    (
        {"block_sizes": BLOCKS, "num_warp": 4},
        "Invalid config keys [num_warp]\n    = fix: did you mean num_warps?",
    ),
    (
        {"block_sizes": BLOCKS, "l2_grouping": 4, "l2_groupings": [4]},
        "invalid config: both l2_grouping and l2_groupings are given\n"
        "    = fix: leave out l2_grouping",
    ),
    (
        {"block_sizes": BLOCKS, "pallas_loop_type": "unroll"},
        "Unsupported config keys for backend triton: [pallas_loop_type]\n"
        "    = fix: leave them out for this backend",
    ),
    (
        {"block_sizes": BLOCKS, "pid_type": "persistant_blocked"},
        "invalid config: pid_type = 'persistant_blocked'\n"
        "    = expected: one of 'flat', 'xyz', 'persistent_blocked', 'persistent_interleaved'\n"
        "    = fix: did you mean 'persistent_blocked'?",
    ),
    (
        {"block_sizes": BLOCKS, "num_sm_multiplier": 4},
        "invalid config: num_sm_multiplier=4 with pid_type='flat'\n"
        "    = expected: num_sm_multiplier is for persistent programs only\n"
        '    = fix: leave out num_sm_multiplier, or use pid_type="persistent_blocked"',
    ),
    (
        {"block_sizes": BLOCKS, "pid_type": "xyz", "maxnreg": 64},
        "invalid config: maxnreg=64 with pid_type='xyz'\n"
        "    = expected: maxnreg is for persistent programs only\n"
        '    = fix: leave out maxnreg, or use pid_type="persistent_blocked"',
    ),
    (
        {"block_sizes": BLOCKS, "pid_type": "persistent_blocked", "maxnreg": 256, "num_warps": 16},
        "invalid config: maxnreg=256 with num_warps=16\n"
        "    = expected: at most 65536 registers per program: maxnreg * num_warps * 32\n"
        "    = found: 131072\n"
        "    = fix: lower maxnreg or num_warps",
    ),
    (
        {"block_sizes": [2048, 1024, 16]},
        "invalid config: tile zero f32[tile_m, tile_n] would hold 2097152 elements\n"
        "    = expected: at most 1048576 elements in one tile\n"
        "    = fix: lower block_sizes[0] (tile_m) or block_sizes[1] (tile_n)",
    ),
]


@pytest.mark.parametrize(("given", "text"), ERRORS, ids=[str(given)[:60] for given, _ in ERRORS])
def test_error_texts(given, text):
    with pytest.raises(InvalidConfig) as raised:
        matmul_spec().normalize(Config(**given))
    assert str(raised.value) == text


def test_unknown_key_without_a_near_one_lists_all():
    with pytest.raises(InvalidConfig, match=r"(?s)one of .*num_warps.*register_tunable"):
        matmul_spec().normalize(Config(block_sizes=BLOCKS, zzz=1))  # pyright: ignore[reportCallIssue]


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (programs.softmax(), "the top-level loop has 1 axes, xyz needs 2 or 3"),
        (programs.gather(), "the kernel has 2 top-level loops, which share one launch axis"),
    ],
)
def test_xyz_needs_two_or_three_axes_of_one_loop(function, reason):
    spec = spec_of(function)
    blocks = [16] * len(spec.lists["block_sizes"])
    with pytest.raises(InvalidConfig) as raised:
        spec.normalize(Config(block_sizes=blocks, pid_type="xyz"))
    assert str(raised.value) == (
        f"invalid config: pid_type='xyz' cannot be used: {reason}\n"
        "    = fix: use pid_type='flat', or leave pid_type out"
    )


def test_barrier_refuses_other_program_ids():
    spec = spec_of(programs.with_barrier(programs.gather()))
    with pytest.raises(BarrierRequiresPersistent, match="flat"):
        spec.normalize(Config(block_sizes=[16, 16], pid_type="flat"))


def test_programs_of_unknown_number_must_be_persistent():
    spec = spec_of(programs.data_dependent())
    assert spec.default_config().pid_type == "persistent_blocked"
    with pytest.raises(InvalidConfig) as raised:
        spec.normalize(Config(block_sizes=[64], pid_type="flat"))
    assert str(raised.value) == (
        "invalid config: pid_type='flat' cannot be used: "
        "the range of the top-level loop is read from a tensor\n"
        "    = fix: use pid_type='persistent_blocked', or leave pid_type out"
    )


def test_launch_axes_have_a_limit():
    spec = spec_of(programs.pointwise(64, 1 << 20))
    config = Config(block_sizes=[1, 1], pid_type="xyz", loop_orders=[[1, 0]])
    assert spec.normalize(config).pid_type == "xyz"
    with pytest.raises(InvalidConfig) as raised:
        spec.normalize(config.updated(loop_orders=[[0, 1]]))
    assert str(raised.value) == (
        "invalid config: pid_type='xyz' would launch 64 x 1048576 programs\n"
        "    = expected: at most 65535 along the second and third axis\n"
        "    = fix: use pid_type='flat', larger block_sizes, or another of the loop_orders"
    )


def test_wide_warps_have_fewer():
    with pytest.raises(InvalidConfig, match="a power of two from 1 to 16"):
        matmul_spec("hip:gfx942").normalize(Config(block_sizes=BLOCKS, num_warps=32))


def test_xcd_remap_with_xyz():
    config = Config(block_sizes=BLOCKS, pid_type="xyz", xcd_remap=True)
    with pytest.raises(InvalidConfig, match="xcd_remap=True with pid_type='xyz'"):
        matmul_spec("hip:gfx942").normalize(config)


ABSENT = ("flatten_loops", "reduction_loops", "static_ranges", "atomic_indexing")
"""Lists without entries in this kernel."""


@pytest.mark.parametrize("key", [key.name for key in KEYS if key.name not in ABSENT])
def test_no_key_takes_just_anything(key):
    is_nvidia = key in ("maxnreg", "range_warp_specializes", "epilogue_subtile")
    target = "cpu" if key.startswith("cpu_") else "cuda:100" if is_nvidia else "hip:gfx942"
    spec = matmul_spec(target)
    for wrong in ("nonsense", -1, [object()], 2.5):
        with pytest.raises(InvalidConfig):
            spec.normalize({"block_sizes": BLOCKS, key: wrong})


def test_tunables_must_not_have_built_in_names():
    with pytest.raises(TunableNameConflict, match="num_warps"):
        spec_of(programs.matmul(), tunables={"num_warps": PowerOfTwoFragment(1, 4)})


def test_wrong_tunable_value():
    spec = spec_of(programs.split_k(), tunables={"mode": EnumFragment(("fast", "slow"))})
    with pytest.raises(InvalidConfig) as raised:
        spec.normalize(Config(block_sizes=BLOCKS, mode="fats"))  # pyright: ignore[reportCallIssue]
    assert str(raised.value) == (
        "invalid config: mode = 'fats'\n"
        "    = expected: one of 'fast', 'slow'\n"
        "    = fix: did you mean 'fast'?"
    )
