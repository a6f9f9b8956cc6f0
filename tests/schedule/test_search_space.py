"""Dimensions and random Configs: everything sampled is valid, fits, and differs in code."""

from __future__ import annotations

from random import Random

import pytest

from tests.schedule import programs
from tests.schedule.test_normalize import BLOCKS, matmul_spec, spec_of
from tilesmith.schedule.config import Config
from tilesmith.schedule.space.fragments import PowerOfTwoFragment

TARGETS = ["cuda:80", "cuda:90", "cuda:100", "hip:gfx942", "hip:gfx950", "cpu"]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", programs.ALL)
def test_random_configs_are_in_normal_form_and_fit(name, target):
    spec = spec_of(programs.ALL[name](), target, {"splits": PowerOfTwoFragment(1, 16)})
    rng = Random(f"{name} {target}")
    for _ in range(25):
        config = spec.random_config(rng)
        assert spec.normalize(config) == config
        assert Config.from_json(config.to_json()) == config
        assert spec.resources(config).fits
        assert spec.unflatten(spec.flatten(config)) == config


def test_random_configs_repeat_with_the_seed():
    spec = matmul_spec()
    first = [spec.random_config(Random(7)) for _ in range(3)]
    assert first == [spec.random_config(Random(7)) for _ in range(3)]


@pytest.mark.parametrize("name", programs.ALL)
def test_every_dimension_can_change_the_config(name):
    spec = spec_of(programs.ALL[name](), "cuda:90")
    rng = Random(3)
    seen = {dimension: set() for dimension in spec.dimensions()}
    for _ in range(150):
        for dimension, value in spec.flatten(spec.random_config(rng)).items():
            seen[dimension].add(repr(value))
    stuck = [str(dimension) for dimension, values in seen.items() if len(values) < 2]
    assert stuck == []


def test_gathers_have_no_indexing_choice():
    spec = spec_of(programs.gather())
    searched = {d.index for d in spec.dimensions() if d.key == "indexing"}
    assert 1 not in searched
    assert "indexing" not in {d.key for d in spec_of(programs.matmul(), "cuda:80").dimensions()}


def test_inactive_dimensions_depend_on_the_other_choices():
    spec = matmul_spec()
    flat = spec.normalize(Config(block_sizes=BLOCKS))
    persistent = spec.normalize(Config(block_sizes=BLOCKS, pid_type="persistent_blocked"))
    extra = set(spec.active_dimensions(persistent)) - set(spec.active_dimensions(flat))
    assert {(d.key, d.index) for d in extra} == {
        ("range_num_stages", 0),
        ("range_multi_buffers", 0),
        ("range_flattens", 0),
        ("num_sm_multiplier", None),
        ("maxnreg", None),
    }


def test_fingerprint_follows_the_space():
    same = matmul_spec().fingerprint() == matmul_spec().fingerprint()
    assert same
    others = {
        matmul_spec("cuda:80").fingerprint(),
        spec_of(programs.matmul(64)).fingerprint(),
        spec_of(programs.matmul(), tunables={"x": PowerOfTwoFragment(1, 2)}).fingerprint(),
        matmul_spec().fingerprint(),
    }
    assert len(others) == 4
