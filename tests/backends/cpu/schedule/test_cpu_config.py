"""The keys of a CPU: what is kept, dropped and refused, and what a schedule makes of them."""

from __future__ import annotations

from random import Random

import pytest
import torch

import tilesmith as helion
from examples import softmax
from tests.backends.cpu.schedule.cpu_runs import MACHINE
from tests.lowering import schedule_function
from tests.schedule import programs
from tests.schedule.test_normalize import BLOCKS, matmul_spec
from tests.specs import config_spec
from tilesmith.backends.cpu.schedule.rules import CpuBlockSizeFragment
from tilesmith.exc import (
    InvalidConfig,
    InvalidConfigKeys,
    InvalidConfigValue,
    TunableNameConflict,
    UnsupportedConfigKeys,
)
from tilesmith.ir.types import Dim
from tilesmith.schedule.config import KEYS, Config, is_reserved
from tilesmith.schedule.model.estimates import NO_CODE
from tilesmith.schedule.schedule import CpuOptions
from tilesmith.schedule.space.fragments import PowerOfTwoFragment

CPU_KEYS = ("cpu_threads", "cpu_unroll", "cpu_streaming_stores", "cpu_schedule")
GPU_CONFIG = Config(
    block_sizes=BLOCKS,
    loop_orders=[[1, 0]],
    l2_groupings=[4],
    range_unroll_factors=[0, 2],
    range_num_stages=[0, 3],
    range_multi_buffers=[None, False],
    range_flattens=[None, True],
    num_warps=8,
    num_stages=3,
    indexing=["tensor_descriptor", "pointer", "block_ptr"],
    pid_type="persistent_interleaved",
    num_sm_multiplier=2,
    maxnreg=128,
    load_eviction_policies=["first", "last"],
)


def cpu_spec(function=None, tunables=None):
    return config_spec(function or programs.matmul(), MACHINE, tunables)


def cpu_schedule(function, **values):
    spec = cpu_spec(function)
    return schedule_function(function, spec, Config(**values))[1]


def test_full_form_of_a_short_config():
    assert dict(cpu_spec().normalize(Config(block_sizes=BLOCKS))) == {
        "block_sizes": [64, 32, 16],
        "loop_orders": [[0, 1]],
        "cpu_threads": 0,
        "cpu_unroll": 4,
        "cpu_streaming_stores": False,
        "cpu_schedule": "static",
    }


def test_keys_of_gpus_are_dropped():
    spec = cpu_spec()
    config = spec.normalize(GPU_CONFIG)
    assert config == spec.normalize(Config(block_sizes=BLOCKS, loop_orders=[[1, 0]]))


def test_keys_of_cpus_are_dropped_on_gpus():
    given = Config(
        block_sizes=BLOCKS,
        cpu_threads=3,
        cpu_unroll=8,
        cpu_streaming_stores=True,
        cpu_schedule="dynamic",
    )
    for target in ("cuda:90", "hip:gfx942"):
        spec = matmul_spec(target)
        assert spec.normalize(given) == spec.normalize(Config(block_sizes=BLOCKS))


def test_every_key_is_known_somewhere():
    portable = {"block_sizes", "loop_orders", "flatten_loops", "reduction_loops"}
    spec = cpu_spec(tunables={"my_own_tunable": PowerOfTwoFragment(1, 4)})
    effective = {*spec.lists, *spec.scalars}
    for key in KEYS:
        assert (key.name in effective) == (key.name in portable or key.name in CPU_KEYS)
    assert "my_own_tunable" in effective


def test_no_key_of_a_gpu_is_reported_or_searched():
    spec = config_spec(programs.softmax(), MACHINE, {"splits": PowerOfTwoFragment(1, 16)})
    assert spec.supported_keys == ("block_sizes", "reduction_loops", *CPU_KEYS, "splits")
    assert {dimension.key for dimension in spec.dimensions()} == {
        "block_sizes",
        "reduction_loops",
        "cpu_unroll",
        "cpu_schedule",
        "splits",
    }


def test_streaming_is_searched_where_outputs_are_large():
    keys = {dimension.key for dimension in cpu_spec(programs.pointwise()).dimensions()}
    assert keys == {"block_sizes", "loop_orders", "cpu_streaming_stores", "cpu_schedule"}


def test_values_reach_the_schedule():
    assert cpu_schedule(programs.matmul(), block_sizes=BLOCKS).cpu == CpuOptions()
    schedule = cpu_schedule(
        programs.matmul(),
        block_sizes=BLOCKS,
        cpu_threads=3,
        cpu_unroll=8,
        cpu_streaming_stores=True,
        cpu_schedule="dynamic",
    )
    assert schedule.cpu == CpuOptions(3, 8, True, True)


@pytest.mark.parametrize("width", [1, 2, 15, 17, 80])
def test_tiles_have_their_true_size(width):
    schedule = cpu_schedule(programs.attention(2, 100, width), block_sizes=[2, 1])
    assert schedule.padded == {}
    assert schedule.symbols == {"tile_m": 2, "tile_n": 1}
    assert schedule.physical(Dim.of(width)) == width


def test_products_may_have_any_side():
    assert cpu_schedule(programs.matmul(), block_sizes=[1, 1, 1]).symbols == {
        "tile_m": 1,
        "tile_n": 1,
        "tile_k": 1,
    }


@pytest.mark.parametrize(
    ("values", "problem", "remedy"),
    [
        ({"cpu_threads": -1}, "cpu_threads = -1", "an integer from 0 to 1024"),
        ({"cpu_threads": True}, "cpu_threads = True", "an integer from 0 to 1024"),
        ({"cpu_unroll": 3}, "cpu_unroll = 3", "a power of two from 1 to 8"),
        ({"cpu_unroll": 16}, "cpu_unroll = 16", "a power of two from 1 to 8"),
        ({"cpu_streaming_stores": 1}, "cpu_streaming_stores = 1", "True or False"),
        ({"cpu_schedule": "dynamik"}, "cpu_schedule = 'dynamik'", "did you mean 'dynamic'?"),
        (
            {"block_sizes": [64, 12, 16]},
            "block_sizes[1] (tile_n) = 12",
            "a power of two or a multiple of 8",
        ),
    ],
)
def test_wrong_values_are_named_with_a_remedy(values, problem, remedy):
    with pytest.raises(InvalidConfigValue) as caught:
        cpu_spec().normalize({"block_sizes": BLOCKS, **values})
    assert problem in str(caught.value)
    assert remedy in str(caught.value)


def test_misspelt_keys_are_recognised():
    with pytest.raises(InvalidConfigKeys, match="did you mean cpu_threads"):
        cpu_spec().normalize(Config(block_sizes=BLOCKS, cpu_thread=2))  # pyright: ignore[reportCallIssue]


def test_keys_of_other_generators_name_this_backend():
    with pytest.raises(UnsupportedConfigKeys, match="backend cpu"):
        cpu_spec().normalize(Config(block_sizes=BLOCKS, num_threads=2))  # pyright: ignore[reportCallIssue]


@pytest.mark.parametrize("name", CPU_KEYS)
def test_tunables_cannot_have_the_name_of_a_key(name):
    assert is_reserved(name)
    with pytest.raises(TunableNameConflict):
        cpu_spec(tunables={name: PowerOfTwoFragment(1, 4)})


def test_singular_spellings():
    spec = cpu_spec(programs.softmax())
    short = spec.normalize(Config(block_size=8, reduction_loop=1024))
    assert short == spec.normalize(Config(block_sizes=[8], reduction_loops=[1024]))


def test_tiles_beyond_the_limit_are_refused():
    side = 1 << 13
    spec = cpu_spec(programs.pointwise(4 * side, 4 * side))
    assert spec.normalize(Config(block_sizes=[side, side])).block_sizes == [side, side]
    with pytest.raises(InvalidConfig) as caught:
        spec.normalize(Config(block_sizes=[side + 8, side]))
    assert f"at most {1 << 26} elements in one tile" in str(caught.value)
    assert "lower block_sizes[0] (tile_m) or block_sizes[1] (tile_n)" in str(caught.value)


def test_fitting_halves_blocks_of_any_size():
    spec = cpu_spec(programs.pointwise(1 << 20, 1 << 20))
    assert spec.fit({"block_sizes": [24_000, 24_008]}).block_sizes == [8192, 8192]
    assert spec.fit({"block_sizes": [16, 24]}).block_sizes == [16, 24]


@pytest.mark.parametrize("name", programs.ALL)
def test_configs_survive_every_round_trip(name):
    spec = cpu_spec(programs.ALL[name]())
    rng = Random(name)
    for config in (*spec.seed_configs(), *(spec.random_config(rng) for _ in range(20))):
        assert spec.normalize(config) == config
        assert Config.from_json(config.to_json()) == config
        assert spec.normalize(config.minimize(spec)) == config
        assert spec.unflatten(spec.flatten(config)) == config


@pytest.mark.parametrize("name", programs.ALL)
def test_every_dimension_can_change_the_config(name):
    spec = cpu_spec(programs.ALL[name]())
    rng = Random(3)
    seen = {dimension: set() for dimension in spec.dimensions()}
    for _ in range(100):
        for dimension, value in spec.flatten(spec.random_config(rng)).items():
            seen[dimension].add(repr(value))
    assert [str(dimension) for dimension, values in seen.items() if len(values) < 2] == []


def test_random_tiles_are_of_a_useful_size():
    rng = Random(0)
    spec = cpu_spec(programs.pointwise(1 << 20, 1 << 20))
    assert all(spec.resources(spec.random_config(rng)).tile_elements <= 1 << 20 for _ in range(50))
    # A row that is longer stays as it is, or is cut into chunks.
    long_rows = cpu_spec(programs.softmax(64, 1 << 22))
    configs = [long_rows.random_config(rng) for _ in range(50)]
    assert any(config.reduction_loops == [None] for config in configs)
    assert all(config.block_sizes == [1] for config in configs if not config.reduction_loops[0])


def test_resources_of_gpus_are_not_guessed():
    use = cpu_spec().resources(cpu_spec().default_config())
    assert (use.registers, use.shared_bytes, use.straight) == (0, 0, NO_CODE)
    assert use.tile_elements == 256 * 512
    assert use.fits


def test_blocks_of_cpus_are_multiples_of_eight_but_searched_as_powers_of_two():
    fragment = CpuBlockSizeFragment(1, 256, 16)
    assert all(map(fragment.contains, (1, 2, 4, 8, 24, 96, 128, 1000)))
    assert not any(map(fragment.contains, (0, -8, 3, 12, 20, True, 8.0)))
    assert fragment.neighbours(96) == [32, 64, 128]
    assert fragment.mutate(24, (2, 1), Random(0)) == 32
    assert fragment.mutate(24, (1, 2), Random(0)) == 8
    assert fragment.mutate(24, (1, 1), Random(0)) == 24


def test_runtime_sizes_are_not_padded():
    kernel = helion.kernel(softmax.softmax.fn, static_shapes=False)
    function = kernel.bind((torch.empty(5, 1000),)).function
    spec = config_spec(function, MACHINE)
    _, schedule = schedule_function(function, spec, Config(block_sizes=[2]))
    sizes = {size.name: size.hint for size in function.sizes}
    assert 1000 in sizes.values()
    assert schedule.symbols == {"tile_m": 2, **sizes}
    # What is not known when code is made cannot be known to be large.
    huge = kernel.bind((torch.empty(1 << 15, 1 << 12),)).function
    assert not config_spec(huge, MACHINE).default_config().cpu_streaming_stores
