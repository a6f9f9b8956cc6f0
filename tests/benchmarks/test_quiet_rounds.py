"""Rounds in which others were busy are redone, and only kept when no better ones come."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks import quiet_rounds
from benchmarks.quiet_rounds import Load, Rounds, run_rounds, share_of_others

WORKS = {"a": lambda: None, "b": lambda: None}


def disturb(monkeypatch: pytest.MonkeyPatch, shares: list[float]) -> Iterator[float]:
    remaining = iter(shares)
    monkeypatch.setattr(quiet_rounds, "share_of_others", lambda before, after: next(remaining))
    return remaining


def test_share_counts_what_neither_slept_nor_was_ours():
    before, after = Load(wall=10.0, busy=5.0, own=3.0), Load(wall=12.0, busy=8.0, own=5.0)
    assert share_of_others(before, after) == pytest.approx(0.5)
    assert share_of_others(before, Load(12.0, 6.0, 6.0)) == 0.0
    assert share_of_others(None, after) == 0.0


def test_the_system_tells_the_load_or_nothing(tmp_path, monkeypatch: pytest.MonkeyPatch):
    stat = tmp_path / "stat"
    stat.write_text("cpu  100 200 300 4000 5000 10 20 30 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\n")
    monkeypatch.setattr(quiet_rounds, "STAT", stat)
    found = quiet_rounds.read_load()
    assert found is not None
    assert found.busy == pytest.approx(6.6)
    monkeypatch.setattr(quiet_rounds, "STAT", tmp_path / "none")
    assert quiet_rounds.read_load() is None


def test_noisy_rounds_are_redone(monkeypatch: pytest.MonkeyPatch):
    remaining = disturb(monkeypatch, [0.0, 0.9, 0.1, 0.3, 0.25, 7.0])
    rounds = run_rounds(WORKS, rounds=3, min_sample_ms=0.0)
    assert (rounds.num_noisy, rounds.num_noisy_kept) == (2, 0)
    assert {name: len(samples) for name, samples in rounds.samples_ms.items()} == {"a": 3, "b": 3}
    assert list(remaining) == [7.0]


def test_the_least_disturbed_fill_up(monkeypatch: pytest.MonkeyPatch):
    disturb(monkeypatch, [0.9, 0.8, 0.1, 0.7, 0.6, 0.5])
    rounds = run_rounds(WORKS, rounds=2, min_sample_ms=0.0)
    assert (rounds.num_noisy, rounds.num_noisy_kept) == (4, 1)
    assert len(rounds.samples_ms["a"]) == 2


def test_order_turns_round(monkeypatch: pytest.MonkeyPatch):
    disturb(monkeypatch, [0.0] * 2)
    called: list[str] = []
    works = {name: lambda name=name: called.append(name) for name in ("a", "b")}
    run_rounds(works, rounds=2, min_sample_ms=0.0)
    assert called == ["a", "b", "b", "a"]


def test_ratio_pairs_samples_of_a_round():
    rounds = Rounds({"slow": [2.0, 20.0, 6.0], "fast": [1.0, 10.0, 2.0]}, 0, 0)
    ratio = rounds.ratio("slow", "fast")
    assert ratio.estimate == pytest.approx(2.0)
    assert ratio.high > ratio.low == pytest.approx(2.0)
