"""What is done while torch is imported, and torch that is imported only when it is used."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tilesmith.tune.runner import late_torch
from tilesmith.tune.runner import main as warm_up


class FakeCuda:
    """A driver library with some devices; remembers what it was asked."""

    def __init__(self, num_devices: int, init_error: int = 0) -> None:
        self.num_devices, self.init_error = num_devices, init_error
        self.calls: list[tuple[Any, ...]] = []

    def cuInit(self, flags: int) -> int:  # noqa: N802 - as the library has it
        self.calls.append(("init", flags))
        return self.init_error

    def cuDeviceGet(self, device: Any, number: int) -> int:  # noqa: N802
        device._obj.value = 100 + number
        return 0 if number < self.num_devices else 101

    def cuDevicePrimaryCtxRetain(self, context: Any, device: Any) -> int:  # noqa: N802
        self.calls.append(("context", device.value))
        return 0


@pytest.mark.parametrize(
    ("cuda", "number", "calls"),
    [
        (FakeCuda(2), 1, [("init", 0), ("context", 101)]),
        (FakeCuda(1), 1, [("init", 0)]),
        (FakeCuda(1, init_error=999), 0, [("init", 0)]),
    ],
)
def test_only_the_context_of_the_device_is_made(monkeypatch, cuda, number, calls):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: cuda)
    warm_up.make_context(number)
    assert cuda.calls == calls


def test_work_begins_for_the_device_and_its_errors_are_left_for_later(monkeypatch):
    done: list[Any] = []

    def fail() -> None:
        done.append("driver")
        raise AssertionError("no compiler")

    monkeypatch.setattr(warm_up, "use_cache_dir", lambda folder: done.append(folder.name))
    monkeypatch.setattr(warm_up, "make_context", done.append)
    monkeypatch.setattr(warm_up, "build_driver", fail)
    monkeypatch.setattr(warm_up, "find_compiler_key", lambda: done.append("key"))
    for device, number in [("cuda:3", 3), ("cuda", 0)]:
        done.clear()
        for thread in warm_up.start_warm_up(device):
            thread.join(5.0)
        assert done[0] == "triton"
        assert sorted(map(str, done[1:])) == [str(number), "driver", "key"]


LATE = """
import sys
sys.path.insert(0, {folder!r})
import late_torch
late_torch.postpone_torch()
import torch
import torch as again
assert torch.Tensor is again.Tensor
assert "torch._C" not in sys.modules
{use}
assert "torch._C" in sys.modules
assert sys.modules["torch"].Tensor.__module__ == "torch"
"""


@pytest.mark.parametrize(
    "use",
    [
        # Each loads torch anew, which takes two seconds.
        pytest.param("assert torch.ones(2).sum() == 2", marks=pytest.mark.full),
        "import torch.nn.functional as f; assert f.relu(torch.ones(1)) == 1",
    ],
)
def test_postponed_torch_is_there_when_it_is_used(use):
    script = LATE.format(folder=str(Path(late_torch.__file__).parent), use=use)
    subprocess.run([sys.executable, "-c", script], check=True)


def test_torch_that_was_imported_stays(monkeypatch):
    before = sys.modules["torch"]
    late_torch.postpone_torch()
    assert sys.modules["torch"] is before
