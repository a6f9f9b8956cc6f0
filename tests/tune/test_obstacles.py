"""Which candidates are turned away before they are built."""

from __future__ import annotations

import pytest

from tests.schedule import programs
from tests.specs import config_spec
from tilesmith.schedule.config import Config
from tilesmith.schedule.spec import ConfigSpec
from tilesmith.store.outcome import Candidate
from tilesmith.targets import parse_target
from tilesmith.tune.search_run import make_obstacle_finder


def row_product(n: int) -> ConfigSpec:
    return config_spec(programs.matmul_row_norm(4096, n, 512, "bf16"), parse_target("cuda:90"))


def obstacle(spec: ConfigSpec, config: Config, origin: str = "mutation") -> str:
    return make_obstacle_finder(spec)(Candidate(spec.normalize(config), origin=origin))


def test_what_would_spill_is_turned_away_where_others_do_not():
    large = Config(block_sizes=[128, 16], num_warps=4, num_stages=1)
    assert "registers" in obstacle(row_product(1024), large)
    assert obstacle(row_product(1024), large, origin="user") == ""


def test_rows_that_fit_no_registers_may_spill_but_must_fit_shared_memory():
    spec = row_product(4096)
    assert "registers" in (spec.feasibility(spec.default_config()) or "")
    assert obstacle(spec, Config(block_sizes=[16, 16], num_warps=8, num_stages=1)) == ""
    deep = Config(block_sizes=[16, 32], num_warps=16, num_stages=4)
    assert "shared memory" in obstacle(spec, deep)


@pytest.mark.parametrize("n", [512, 4096])
def test_seeds_are_never_all_turned_away(n):
    spec = row_product(n)
    assert any(obstacle(spec, config, origin="seed") == "" for config in spec.seed_configs())
