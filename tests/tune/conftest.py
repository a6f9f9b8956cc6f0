"""Ctrl-C reaches the tests of the tuner, wherever they run; finals are short, cores are theirs."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def interrupts_are_heard() -> Iterator[None]:
    """A shell lets its background jobs, and what they start, ignore interrupts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def finals_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Finals fill the seconds they may have, to tell apart what no test here tells apart."""
    monkeypatch.setattr("tilesmith.tune.tuner.MAX_FINALS_S", 0.3)


@pytest.fixture(autouse=True)
def machine_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a search stores does not depend on what else runs here."""
    monkeypatch.setattr("tilesmith.tune.workers.JointRunner.disturbances", (0, 1))
