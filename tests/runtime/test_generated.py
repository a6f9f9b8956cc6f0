"""What generated modules of the peer import from ``runtime``."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tilesmith import exc, runtime
from tilesmith.runtime import generated
from tilesmith.targets import cuda_target, hip_target


class Jitted:
    """Stands for a function under ``triton.jit``."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def run(self, *args: Any, **options: Any) -> str:
        self.calls.append((args, options))
        return "launched"


def test_a_launch_hands_everything_to_triton() -> None:
    kernel = Jitted()
    assert runtime.default_launcher(kernel, (3,), 1, 2, num_warps=4, num_stages=2, maxnreg=64)
    plain = {"grid": (3,), "warmup": False, "num_warps": 4, "num_stages": 2, "maxnreg": 64}
    assert kernel.calls == [((1, 2), plain)]
    more: Any = {"ptx_options": "--x", "launch_cooperative_grid": True}
    runtime.default_launcher(kernel, (3,), num_warps=4, num_stages=2, maxnreg=64, **more)
    assert kernel.calls[1] == ((), {**plain, **more})
    with pytest.raises(exc.BackendUnsupported, match="_remote_copy_signal_dst"):
        runtime.default_launcher(
            kernel, (3,), num_warps=4, num_stages=2, _remote_copy_signal_dst=None
        )


@pytest.mark.parametrize(
    ("arch", "units", "count"),
    [("gfx942", 304, 8), ("gfx942", 228, 6), ("gfx950", 256, 8), ("gfx950", 80, 1)],
)  # fmt: skip
def test_chiplets_are_counted(monkeypatch: pytest.MonkeyPatch, arch, units, count) -> None:
    monkeypatch.setattr(generated, "target_of", lambda device: hip_target(arch))
    monkeypatch.setattr(generated, "get_num_sm", lambda device: units)
    assert runtime.get_num_xcd(torch.device("cuda")) == count


def test_other_devices_are_one_chiplet(monkeypatch: pytest.MonkeyPatch) -> None:
    assert runtime.get_num_xcd(torch.device("cpu")) == 1
    monkeypatch.setattr(generated, "target_of", lambda device: cuda_target(90))
    assert runtime.get_num_xcd(torch.device("cuda")) == 1


def test_triton_gets_memory_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    fake = SimpleNamespace(set_allocator=given.append)
    monkeypatch.setattr(generated, "import_module", lambda name: fake)
    runtime.set_triton_allocator()
    assert callable(given[0])
