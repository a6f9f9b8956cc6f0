"""Functions that run while device code is traced, and not for it, are no part of the trace."""

from __future__ import annotations

import gc
import signal
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.frontend.tracing.tracer import Tracer

X = torch.arange(1, 14, dtype=torch.float32)
COUNTS = {"kept": 0.0}
IS_BUSY = [True]


class Options:
    factor = 2.0
    seen = 0.0
    """What device code does not read."""


@helion.kernel
def reads_a_class(x):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = x[t] * Options.factor
    return out


def happen(*_: object) -> None:
    """Changes names of this module, and reads an attribute that the trace may take for its own."""
    COUNTS["kept"] += 1.0
    Options.seen += 1.0


class Ring:
    """Garbage that only a collection finds."""

    def __init__(self) -> None:
        self.me = self


class EndedRing(Ring):
    def __del__(self) -> None:
        happen()
        if IS_BUSY[0]:
            EndedRing()


def leave_ring_with_callback() -> list[Any]:
    kept: list[Any] = []

    def gone(_: object) -> None:
        happen()
        if IS_BUSY[0]:
            leave()

    def leave() -> None:
        kept.append(weakref.ref(Ring(), gone))

    leave()
    return kept


def leave_finalized_ring() -> None:
    def ended() -> None:
        happen()
        if IS_BUSY[0]:
            leave_finalized_ring()

    weakref.finalize(Ring(), ended)


def collection_callback(phase: str, info: dict[str, Any]) -> None:
    happen()


@pytest.fixture
def many_collections() -> Iterator[None]:
    """Nearly every object that is made starts a collection."""
    were, IS_BUSY[0] = gc.get_threshold(), True
    gc.set_threshold(1, 1, 1)
    yield
    IS_BUSY[0] = False
    gc.set_threshold(*were)
    gc.collect()


@pytest.mark.parametrize(
    "leave", [EndedRing, leave_ring_with_callback, leave_finalized_ring], ids=lambda f: f.__name__
)
def test_what_a_collection_ends_is_not_read(many_collections, traces, leave: Callable[[], Any]):
    reads_a_class.reset()
    kept = leave()
    for _ in range(3):
        before = Options.seen
        assert torch.equal(reads_a_class(X), X * 2)
        happen()
        assert Options.seen > before
    assert len(traces) == 1
    del kept


def test_callbacks_of_collections_are_not_read(many_collections, traces):
    reads_a_class.reset()
    for place in (0, len(gc.callbacks) + 1):
        gc.callbacks.insert(place, collection_callback)
    try:
        for _ in range(3):
            assert torch.equal(reads_a_class(X), X * 2)
            happen()
    finally:
        for _ in range(2):
            gc.callbacks.remove(collection_callback)
    assert len(traces) == 1


class Ended:
    def __del__(self) -> None:
        happen()


def make_ended(kept: list[Any]) -> None:
    kept.append(Ended())


def make_finalized(kept: list[Any]) -> None:
    kept.append(Ring.__new__(Ring))
    weakref.finalize(kept[0], happen)


def make_referenced(kept: list[Any]) -> None:
    kept.append(Ring.__new__(Ring))
    WATCH.append(weakref.ref(kept[0], happen))


WATCH: list[Any] = []


def interrupt_traces(monkeypatch, clear: Callable[[], None]) -> None:
    """Every new block of a trace calls a function that no code of a user calls."""
    names = {"__name__": "torch.made_up", "clear": clear, "new_block": Tracer.new_block}
    exec("def called(*args, **more):\n    clear()\n    return new_block(*args, **more)", names)
    monkeypatch.setattr(Tracer, "new_block", names["called"])


@helion.kernel
def applies(x, reader):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = reader(x[t])
    return out


@pytest.mark.parametrize(
    "make", [make_ended, make_finalized, make_referenced], ids=lambda f: f.__name__
)
def test_what_the_end_of_an_object_calls_is_not_read(monkeypatch, traces, make):
    reads_a_class.reset()
    kept: list[Any] = []
    interrupt_traces(monkeypatch, kept.clear)
    for call in range(3):
        make(kept)
        before = Options.seen
        assert torch.equal(reads_a_class(X), X * 2)
        assert Options.seen > before or call > 0
        kept.clear()
    assert len(traces) == 1


def test_what_a_signal_calls_is_not_read(monkeypatch, traces):
    reads_a_class.reset()
    interrupt_traces(monkeypatch, partial(signal.raise_signal, signal.SIGUSR1))
    was = signal.signal(signal.SIGUSR1, happen)
    try:
        before = Options.seen
        for _ in range(3):
            assert torch.equal(reads_a_class(X), X * 2)
            happen()
        assert Options.seen > before + 3
    finally:
        signal.signal(signal.SIGUSR1, was)
    assert len(traces) == 1


def test_what_else_runs_counts_after_a_collection(many_collections, traces):
    applies.reset()
    EndedRing()

    def read_late(value):
        return value * Options.factor

    def reader(value):
        kept = [Ring() for _ in range(100)]
        return read_late(value) + (len(kept) - 100)

    try:
        for factor in (2.0, 3.0, 3.0, 2.0):
            Options.factor = factor
            assert torch.equal(applies(X, reader), X * factor)
    finally:
        Options.factor = 2.0
    assert len(traces) == 2


def test_no_callback_of_ours_is_left():
    before = list(gc.callbacks)
    reads_a_class.reset()
    reads_a_class(X)
    assert gc.callbacks == before


def test_callbacks_may_be_cleared_meanwhile(monkeypatch):
    reads_a_class.reset()
    before = list(gc.callbacks)
    interrupt_traces(monkeypatch, gc.callbacks.clear)
    try:
        assert torch.equal(reads_a_class(X), X * 2)
        assert not gc.callbacks
    finally:
        gc.callbacks[:] = before
