"""Config: an immutable mapping, compared by content, printed as an expression, round-tripping."""

from __future__ import annotations

import pickle
import sys
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilesmith
from tilesmith.schedule.config import KEYS, Config

SCALARS = st.one_of(st.integers(-4, 4096), st.booleans(), st.text(max_size=5), st.none())
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.one_of(
    st.sampled_from([key.name for key in KEYS]), st.from_regex(r"[a-z_]{1,8}", fullmatch=True)
)
CONFIGS = st.dictionaries(NAMES, VALUES, max_size=6).map(Config.from_dict)


@given(CONFIGS)
def test_json_and_pickle_round_trip(config):
    assert Config.from_json(config.to_json()) == config
    assert pickle.loads(pickle.dumps(config)) == config
    assert Config(**config) == config


@given(CONFIGS)
def test_repr_pastes_below_the_import_of_the_package(config):
    assert eval(repr(config), {"tilesmith": tilesmith}) == config
    assert repr(config) == f"tilesmith.{config}"
    assert eval(repr([config, {"used": config}]), {"tilesmith": tilesmith}) == [
        config,
        {"used": config},
    ]


@given(CONFIGS)
def test_repr_pastes_where_the_script_has_helions_name(config):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules["__main__"], "helion", tilesmith, raising=False)
        assert eval(repr([config]), {"helion": tilesmith}) == [config]


def test_another_package_of_that_name_changes_nothing(monkeypatch):
    monkeypatch.setattr(sys.modules["__main__"], "helion", ModuleType("helion"), raising=False)
    assert repr(Config(num_warps=4)) == "tilesmith.Config(num_warps=4)"


@given(CONFIGS, CONFIGS)
def test_equal_configs_have_equal_hashes(first, second):
    assert (first == second) == (dict(first) == dict(second))
    if first == second:
        assert hash(first) == hash(second)
    assert hash(first) == hash(Config.from_dict(dict(reversed(list(first.items())))))


def test_repr_sorts_keys():
    config = Config(num_warps=8, block_sizes=[32, 16], splits=4)  # pyright: ignore[reportCallIssue]
    assert repr(config) == "tilesmith.Config(block_sizes=[32, 16], num_warps=8, splits=4)"
    assert str(config) == "Config(block_sizes=[32, 16], num_warps=8, splits=4)"


def test_none_counts_as_not_given():
    assert Config(block_sizes=[1], num_warps=None) == Config(block_sizes=[1])
    assert "num_warps" not in Config(num_warps=None)
    own = Config(own=None)  # pyright: ignore[reportCallIssue]
    assert Config.from_json(own.to_json())["own"] is None
    assert Config(reduction_loops=[None])["reduction_loops"] == [None]


def test_arguments_are_keyword_only():
    with pytest.raises(TypeError):
        Config(*[[32]])


def test_config_cannot_be_changed_in_place():
    given_blocks = [32, 16]
    config: Any = Config(block_sizes=given_blocks)
    given_blocks.append(8)
    config.block_sizes.append(8)
    config.config["block_sizes"] = []
    assert config["block_sizes"] == [32, 16]
    with pytest.raises(AttributeError, match="immutable"):
        config.num_warps = 8
    with pytest.raises(TypeError):
        config["num_warps"] = 8


def test_tuples_and_lists_are_the_same_value():
    assert (
        Config(loop_orders=[(1, 0)])
        == Config(loop_orders=((1, 0),))
        == Config(loop_orders=[[1, 0]])
    )
    assert Config(loop_orders=[(1, 0)])["loop_orders"] == [[1, 0]]


def test_a_file_of_controls_is_none_unless_given():
    assert Config().advanced_controls_file is None
    assert Config(advanced_controls_file="a.bin").advanced_controls_file == "a.bin"


def test_properties_give_defaults():
    config = Config()
    assert (config.num_warps, config.num_stages, config.pid_type) == (4, 1, "flat")
    assert (config.indexing, config.maxnreg, config.num_sm_multiplier) == ("pointer", None, 1)
    assert config.reduction_loops == config.loop_orders == config.range_flattens == []
    with pytest.raises(KeyError):
        _ = config.block_sizes


@pytest.mark.parametrize("key", [key.name for key in KEYS])
def test_every_key_has_a_property_that_reads_it(key):
    assert getattr(Config(**{key: 7}), key) == 7  # pyright: ignore[reportArgumentType]


def test_save_creates_folders_and_leaves_no_temporary_file(tmp_path):
    path = tmp_path / "a" / "b" / "best.json"
    config = Config(block_sizes=[64], reduction_loops=[None, 512], xcd_remap=True)
    config.save(path)
    config.save(path)
    assert Config.load(path) == config
    assert [item.name for item in path.parent.iterdir()] == ["best.json"]


def test_failed_save_keeps_the_old_file(tmp_path):
    path = tmp_path / "best.json"
    Config(block_sizes=[64]).save(path)
    with pytest.raises(TypeError):
        Config(block_sizes=[32], odd=object()).save(path)  # pyright: ignore[reportCallIssue]
    assert Config.load(path) == Config(block_sizes=[64])
    assert [item.name for item in tmp_path.iterdir()] == ["best.json"]


def test_json_of_something_else_is_refused():
    with pytest.raises(ValueError, match="JSON object"):
        Config.from_json("[1, 2]")


def test_updated_replaces_and_removes():
    config = Config(block_sizes=[8], num_warps=2)
    assert config.updated(num_warps=None, num_stages=3) == Config(block_sizes=[8], num_stages=3)
