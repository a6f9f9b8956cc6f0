"""The lists of a ConfigSpec by the names of config keys, as scripts read them."""

from __future__ import annotations

import pytest
import torch

import tilesmith
import tilesmith.language as hl
from tests.schedule import programs
from tests.specs import config_spec
from tilesmith.autotuner import EnumFragment, ListOf, PowerOfTwoFragment
from tilesmith.exc import InvalidConfig
from tilesmith.targets import parse_target


def matmul_spec(target="cuda:90"):
    return config_spec(programs.matmul(), parse_target(target))


@tilesmith.kernel
def add_one(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    size = hl.register_block_size(32, 256)
    for tile in hl.tile(x.size(0), block_size=size):
        out[tile] = x[tile] + 1
    return out


def test_tile_axes_say_how_long_they_are_and_what_the_source_allows():
    (item,) = add_one.bind((torch.zeros(1024),)).config_spec.block_sizes
    assert (item.size_hint, item.min_size, item.max_size) == (1024, 32, 256)
    assert isinstance(item.fragment, PowerOfTwoFragment)


def test_every_list_has_the_length_that_a_config_has():
    spec = matmul_spec()
    full = spec.normalize({"block_sizes": [64, 32, 16]})
    for key in ("block_sizes", "loop_orders", "l2_groupings", "range_num_stages"):
        assert len(getattr(spec, key)) == len(full[key]), key
    for key in ("indexing", "load_eviction_policies"):
        found = getattr(spec, key)
        assert isinstance(found, ListOf)
        assert found.length == len(full[key]), key
        assert isinstance(found.inner, EnumFragment)
    assert not spec.flatten_loops
    assert not spec.reduction_loops


@tilesmith.kernel
def row_sums(x: torch.Tensor) -> torch.Tensor:
    out = x.new_empty(x.size(0))
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile, :].sum(-1)
    return out


def test_rows_that_are_reduced_say_how_long_they_are():
    (item,) = row_sums.bind((torch.zeros(8, 300),)).config_spec.reduction_loops
    assert item.size_hint == 300


def test_kinds_of_program_ids():
    assert matmul_spec().allowed_pid_types[:2] == ("flat", "xyz")
    assert matmul_spec("cpu").allowed_pid_types == ()


@pytest.mark.parametrize("key", ["num_threads", "no_such_key"])
def test_keys_that_would_be_refused_are_named(key):
    spec = matmul_spec()
    given = {"block_sizes": [64, 32, 16], key: 4, "cpu_unroll": 2}
    assert spec.unsupported_config_keys(given) == [key]
    assert not spec.is_supported_config(given)
    with pytest.raises(InvalidConfig, match=key):
        spec.normalize(given)
    assert spec.normalize({name: given[name] for name in given if name != key})


def test_tunables_of_the_user_by_name():
    tunables = {"parts": PowerOfTwoFragment(1, 8)}
    spec = config_spec(programs.matmul(), parse_target("cuda:90"), tunables)
    assert spec.user_defined_tunables == tunables


@tilesmith.kernel
def two_launches(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * 2
    total = out.sum()
    for tile_m, tile_n in hl.tile([x.size(0), 1]):
        out[tile_m] = out[tile_m] / total[()] + tile_n.begin
    return out


def test_a_kernel_of_several_launches_has_one_specification():
    x = torch.rand(50)
    bound = two_launches.bind((x,))
    assert bound.kernel is two_launches
    spec = bound.env.config_spec
    assert [item.name for item in spec.block_sizes] == ["tile", "tile_m", "tile_n"]
    assert spec.unsupported_config_keys({"block_sizes": [], "stages": [], "num_threads": 1}) == [
        "num_threads"
    ]
    full = spec.normalize({"block_sizes": [16, 8, 1]})
    assert [part["block_sizes"] for part in full["stages"]] == [[16], [8, 1]]
    torch.testing.assert_close(bound.compile_config(full)(x), x * 2 / (x * 2).sum())
    assert spec.default_config() == bound.default_config()
    with pytest.raises(InvalidConfig):
        spec.normalize({"block_sizes": [16]})
