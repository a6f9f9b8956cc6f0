"""The Config that a first call takes from the store, found without a tuner."""

from __future__ import annotations

import logging
import subprocess
from dataclasses import replace

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.warm_python import warm_python
from tilesmith.exc import CacheAssertionError
from tilesmith.store import lookup
from tilesmith.store.lookup import find_stored_config, make_key, winner_key
from tilesmith.store.winners import Winners

X = torch.zeros(64)
SMALL, LARGE = helion.Config(block_sizes=[16]), helion.Config(block_sizes=[32])


def double(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = x[tile] * 2
    return out


def _bind(tmp_path, **settings):
    return helion.kernel(double, cache_dir=str(tmp_path), **settings).bind((X,))


def _store(bound, tmp_path, config, configs=(), **changes):
    key = winner_key(make_key(bound, (X,)), configs, {}, False)
    Winners(tmp_path).commit(replace(key, **changes), config, 0.25)


def test_a_stored_winner_is_found_and_logged(tmp_path, caplog):
    bound = _bind(tmp_path)
    _store(bound, tmp_path, LARGE)
    with caplog.at_level(logging.INFO, "tilesmith.autotune"):
        found = find_stored_config(bound, (X,))
    assert found == bound.config_spec.normalize(LARGE)
    assert "double: stored config (0.25 ms): Config(block_sizes=[32])" in caplog.text


def test_without_any_winner_no_key_is_made(tmp_path, monkeypatch):
    def fail(*_):
        raise AssertionError("made a key")

    monkeypatch.setattr(lookup, "make_key", fail)
    assert find_stored_config(_bind(tmp_path), (X,)) is None


def test_a_winner_of_another_toolchain_or_other_arguments_does_not_count(tmp_path):
    bound = _bind(tmp_path)
    _store(bound, tmp_path, LARGE, toolchain=(("tilesmith", "0"),))
    _store(bound, tmp_path, LARGE, arguments="x: float32[63]")
    assert find_stored_config(bound, (X,)) is None


def test_a_list_of_configs_has_a_winner_of_its_own(tmp_path):
    bound = _bind(tmp_path)
    _store(bound, tmp_path, LARGE)
    _store(bound, tmp_path, SMALL, (SMALL, LARGE))
    listed = find_stored_config(bound, (X,), [SMALL, LARGE])
    assert listed == bound.config_spec.normalize(SMALL)
    assert find_stored_config(bound, (X,), [SMALL]) == bound.config_spec.normalize(LARGE)


def test_skip_cache_finds_nothing(tmp_path):
    bound = _bind(tmp_path, skip_cache=True)
    _store(bound, tmp_path, LARGE)
    assert find_stored_config(bound, (X,)) is None


def test_an_asserted_hit_that_is_missing_is_an_error(tmp_path):
    bound = _bind(tmp_path, assert_cache_hit=True)
    with pytest.raises(CacheAssertionError, match="double"):
        find_stored_config(bound, (X,))


def test_the_lookup_loads_no_tuner():
    code = "import sys, tilesmith.store.lookup; print([m for m in sys.modules if '.tune' in m])"
    found = subprocess.run([*warm_python(), "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
