"""Settings that say what a search chooses from, and how often it searches."""

from __future__ import annotations

import json
from math import inf

import pytest
import torch

from tests.tune.kernels import config, make_add
from tilesmith.settings import Settings
from tilesmith.store.outcome import Candidate, Outcome, Verdict
from tilesmith.tune.autotune import Autotuner
from tilesmith.tune.listener import Progress
from tilesmith.tune.options import options_from_settings
from tilesmith.tune.report.listeners import SpaceListener, choose_listeners
from tilesmith.tune.result import StopReason, TuneResult

X, Y = torch.randn(777), torch.randn(777)
PROGRESS = Progress(0.0, 1.0, 1, 0)


def tell(listener: SpaceListener) -> None:
    for size, ms in ((8, 1.0), (16, inf), (8, 1.0)):
        verdict = Verdict.OK if ms < inf else Verdict.WRONG
        outcome = Outcome(Candidate(config(size), "random"), verdict, median_ms=ms)
        listener.on_outcome(outcome, PROGRESS)
    listener.on_end(TuneResult(config(8), StopReason.BUDGET, 1.0))


@pytest.mark.parametrize("is_verbose", [True, False])
def test_what_there_is_to_choose_from_is_told(tmp_path, caplog, is_verbose) -> None:
    settings = Settings.from_environment(
        {
            "autotune_log_search_space": True,
            "autotune_log_search_space_verbose": is_verbose,
            "autotune_log_search_space_path": tmp_path / "spaces",
        },
        {},
    )
    tell(SpaceListener("add", make_add().bind((X, Y)).config_spec, settings))
    assert "search space of add: 2 of" in caplog.text
    assert "1 of them ran" in caplog.text
    assert ("a power of two" in caplog.text) is is_verbose
    (written,) = (tmp_path / "spaces").iterdir()
    found = json.loads(written.read_text())
    assert (found["kernel"], found["tried"], found["valid"]) == ("add", 2, 1)
    assert found["possible"] > 2
    assert found["dimensions"]


def test_nothing_is_told_unless_asked(caplog) -> None:
    spec = make_add().bind((X, Y)).config_spec
    tell(SpaceListener("add", spec, Settings.from_environment({}, {})))
    assert not caplog.text


def test_details_need_a_file(caplog) -> None:
    for given, is_told in (({}, True), ({"autotune_log": "x"}, False)):
        caplog.clear()
        settings = Settings.from_environment({"autotune_log_details": True, **given}, {})
        choose_listeners(options_from_settings(settings))
        assert ("autotune_log=PATH names one" in caplog.text) is is_told


def test_the_best_of_several_searches_counts(monkeypatch) -> None:
    seeds: list[int] = []

    def run(self, cases, options, multi) -> TuneResult:
        seeds.append(options.seed)
        ms = (3.0, 1.0, 2.0)[len(seeds) - 1]
        return TuneResult(config(2 ** len(seeds)), StopReason.BUDGET, ms)

    monkeypatch.setattr(Autotuner, "_run", run)
    kernel = make_add(autotune_best_of_k=3, autotune_random_seed=7)
    assert kernel.autotune((X, Y)) == config(4)
    assert seeds == [7, 8, 9]


def test_without_heuristics_the_default_is_that_of_every_key() -> None:
    plain = make_add(disable_autotuner_heuristics=True).bind((X, Y))
    usual = make_add().bind((X, Y))
    spec = plain.config_spec
    assert plain.default_config() == spec.base_config() == usual.config_spec.base_config()
    assert [item.config for item in spec.ranked_configs()] == [spec.base_config()]
    assert spec.seed_configs() == (spec.base_config(),)
    assert len(usual.config_spec.ranked_configs()) > 1
    assert torch.equal(make_add(disable_autotuner_heuristics=True)(X, Y), X + Y)
