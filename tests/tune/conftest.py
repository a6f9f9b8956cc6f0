"""Ctrl-C reaches the tests of the tuner, wherever they run."""

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
