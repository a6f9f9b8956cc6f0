"""Code of kernels that are gone is unloaded if no graph can have it; the driver is a fake."""

from __future__ import annotations

import ctypes
import gc
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tilesmith.runtime.launchers import unloading
from tilesmith.runtime.launchers.unloading import Launches, unload_dropped

SIDE, DEFAULT = 7, 0
DEVICE = torch.device("cuda", 1)


class Compiled:
    """Stands for what Triton has compiled and loaded."""

    def __init__(self, module: int | None) -> None:
        self.module = module


class Driver:
    """Notes what it is asked, in order; ``mode`` is how this thread minds recordings."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.mode = 0

    def exchange_mode(self, place: Any) -> int:
        self.mode, place._obj.value = place._obj.value, self.mode
        return 0

    def unload(self, module: ctypes.c_void_p) -> int:
        self.asked.append((module.value, self.mode))
        return 0

    @property
    def library(self) -> SimpleNamespace:
        return SimpleNamespace(
            cuThreadExchangeStreamCaptureMode=self.exchange_mode, cuModuleUnload=self.unload
        )

    @property
    def unloaded(self) -> list[int]:
        return [asked[0] for asked in self.asked if isinstance(asked, tuple)]


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver()
    monkeypatch.setattr(unloading.ctypes, "CDLL", lambda name: made.library)
    stream = SimpleNamespace(synchronize=lambda: made.asked.append("waits"))
    monkeypatch.setattr(torch.cuda, "default_stream", lambda device: stream)
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(unloading, "_dropped", type(unloading._dropped)())
    monkeypatch.setattr(unloading, "unloaded", {})
    return made


def launched(module: int | None, *streams: int, kept: list[Any] | None = None) -> None:
    """A kernel that was launched on these streams, and is gone unless it is kept."""
    launches, compiled = Launches(), Compiled(module)
    launches.watch(compiled, DEVICE, lambda number: streams[0])
    launches.may_be_recorded |= any(stream != DEFAULT for stream in streams[1:])
    if kept is not None:
        kept.append(compiled)


def test_code_that_is_gone_is_unloaded_after_the_device_has_done_with_it(driver: Driver):
    launched(3, DEFAULT)
    launched(4, DEFAULT, DEFAULT)
    gc.collect()
    assert unload_dropped(least=2) == 2
    # The relaxed mode, and the one from before after that.
    assert driver.asked == ["waits", (3, 2), (4, 2)]
    assert driver.mode == 0
    assert unloading.unloaded == {1: 2}


@pytest.mark.parametrize("streams", [(SIDE,), (DEFAULT, SIDE), (SIDE, DEFAULT)])
def test_what_a_graph_may_have_recorded_stays(driver: Driver, streams: tuple[int, ...]):
    launched(3, *streams)
    gc.collect()
    assert unload_dropped(least=0) == 0
    assert driver.unloaded == []


def test_what_somebody_holds_stays(driver: Driver):
    kept: list[Any] = []
    launched(3, DEFAULT, kept=kept)
    gc.collect()
    assert unload_dropped(least=1) == 0
    kept.clear()
    gc.collect()
    assert unload_dropped(least=1) == 1
    assert driver.unloaded == [3]


def test_few_modules_wait_for_more(driver: Driver):
    for module in range(unloading.MOST_DROPPED - 1):
        launched(module, DEFAULT)
    gc.collect()
    assert unload_dropped() == 0
    launched(99, DEFAULT)
    gc.collect()
    assert unload_dropped() == unloading.MOST_DROPPED
    assert len(driver.unloaded) == unloading.MOST_DROPPED


def test_what_was_never_loaded_is_not_unloaded(driver: Driver):
    launched(None, DEFAULT)
    gc.collect()
    assert unload_dropped(least=0) == 0


def test_a_driver_that_fails_leaves_the_mode_as_it_was(driver: Driver, monkeypatch: Any):
    launched(3, DEFAULT)
    gc.collect()
    stream = SimpleNamespace(synchronize=lambda: 1 / 0)
    monkeypatch.setattr(torch.cuda, "default_stream", lambda device: stream)
    with pytest.raises(ZeroDivisionError):
        unload_dropped(least=1)
    assert driver.mode == 0


def test_nothing_is_unloaded_while_this_thread_records(driver: Driver, monkeypatch: Any):
    launched(3, DEFAULT)
    gc.collect()
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert unload_dropped(least=1) == 0
    assert driver.asked == []
