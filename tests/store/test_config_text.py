"""Configs, times and counts in few words."""

from __future__ import annotations

from math import inf

import pytest

from tilesmith.diagnostics.wording import first_line, number_text
from tilesmith.schedule.config import Config
from tilesmith.store.config_text import config_id, config_text, differences, short_text
from tilesmith.tune.report.log import compare_text


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (Config(block_sizes=[]), "Config(block_sizes=[])"),
        (Config(block_sizes=[64], num_warps=4, num_stages=1), "Config(block_sizes=[64])"),
        (
            Config(split_k=4, num_warps=8, block_sizes=[64]),  # pyright: ignore[reportCallIssue]
            "Config(block_sizes=[64], num_warps=8, split_k=4)",
        ),
        (
            Config(block_sizes=[1], loop_orders=[[0, 1]], l2_groupings=[1], maxnreg=64),
            "Config(block_sizes=[1], maxnreg=64)",
        ),
        (
            Config(block_sizes=[1], loop_orders=[[1, 0]], l2_groupings=[4]),
            "Config(block_sizes=[1], loop_orders=[[1, 0]], l2_groupings=[4])",
        ),
        (
            Config(block_sizes=[1], indexing=["pointer", "tensor_descriptor"]),
            "Config(block_sizes=[1], indexing=['pointer', 'tensor_descriptor'])",
        ),
        (
            Config(block_sizes=[1], indexing="pointer", range_unroll_factors=[0, 2]),
            "Config(block_sizes=[1], range_unroll_factors=[0, 2])",
        ),
    ],
)
def test_keys_without_effect_are_left_out(config, text):
    assert config_text(config) == text


def test_a_tunable_of_the_user_is_never_left_out():
    assert config_text(Config(block_sizes=[1], mine=0)) == "Config(block_sizes=[1], mine=0)"  # pyright: ignore[reportCallIssue]


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (Config(block_sizes=[64, 32], num_warps=8, num_stages=3), "64x32 w8 s3"),
        (Config(block_sizes=[]), ""),
        (Config(block_sizes=[1], pid_type="xyz", split_k=2), "1 +2"),  # pyright: ignore[reportCallIssue]
    ],
)
def test_the_short_form_has_tile_warps_stages_and_a_count(config, text):
    assert short_text(config) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.00551234, "0.005512"), (9999.9, "10000"), (999.96, "1000"), (1.0, "1"), (inf, "-")],
)
def test_numbers_have_four_digits(value, text):
    assert number_text(value) == text


def test_a_comparison_names_its_direction():
    assert compare_text(1.0, 2.0) == "2.00x faster than the default (2 ms)"
    assert compare_text(2.0, 1.0) == "2.00x slower than the default (1 ms)"
    assert compare_text(1.0, 1.004) == "as fast as the default (1.004 ms)"
    assert compare_text(1.0, inf) == ""


def test_differences_have_the_values_of_the_default():
    config = Config(block_sizes=[2], num_warps=8, only_here=1)  # pyright: ignore[reportCallIssue]
    default = Config(block_sizes=[1], num_warps=8, only_there=2)  # pyright: ignore[reportCallIssue]
    assert differences(config, default) == {
        "block_sizes": [1],
        "only_here": None,
        "only_there": 2,
    }
    assert differences(config, config) == {}
    assert differences(config, None) == {}


def test_the_id_depends_on_content_alone():
    one = Config(block_sizes=[1], num_warps=8)
    assert config_id(one) == config_id(Config(num_warps=8, block_sizes=[1]))
    assert config_id(one) != config_id(one.updated(num_warps=4))
    # sha256 of {"block_sizes":[1],"num_warps":8}
    assert config_id(one) == "90508cfa54eb8063"


def test_long_reasons_are_cut_at_the_first_line():
    assert first_line("\n  one \n two") == "one"
    assert first_line("") == ""
    assert first_line("x" * 200, 10) == "x" * 9 + "…"
