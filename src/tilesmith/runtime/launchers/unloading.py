"""Unloads the code of kernels that are gone; Triton leaves what it has loaded on the device.

A recorded CUDA graph may launch code whose kernel is gone, and nothing tells. But CUDA records no
launch on the default stream. So only kernels whose launches all went there are unloaded, when there
are some, before the next kernel is loaded, and after that stream has come to its end.
"""

from __future__ import annotations

import ctypes
import weakref
from collections import deque
from collections.abc import Callable
from importlib import import_module
from threading import Lock
from typing import Any

import torch

from tilesmith.diagnostics.logs import topic_log
from tilesmith.runtime.device import is_numbered

LAUNCH = topic_log("launch")
MOST_DROPPED = 16
"""Modules that wait to be unloaded; waiting for the device once serves all of them."""
DEFAULT = 0
"""The stream that nothing records."""
_RELAXED = 2
"""So that no other thread's recording ends by what this thread asks of the driver."""
_dropped: deque[tuple[int, int]] = deque()
"""Device and module. Appended to while garbage is collected, in any thread and at any time."""
unloaded: dict[int, int] = {}
"""How many modules so far, by device."""
_lock = Lock()


def stream_finder() -> Callable[[int], int]:
    """Tells the current stream of a device as a number; torch would make an object for it."""
    return import_module("triton.runtime").driver.active.get_current_stream


class Launches:
    """Where kernels of one launcher were launched; its code knows by this whether it may go."""

    __slots__ = ("may_be_recorded",)

    def __init__(self) -> None:
        self.may_be_recorded = False

    def watch(self, compiled: Any, device: torch.device, find_stream: Callable[[int], int]) -> None:
        """Unload what was launched for the first time just now, some time after it is gone."""
        module = getattr(compiled, "module", None)
        if not isinstance(module, int) or torch.version.hip is not None:
            return
        number = device.index if is_numbered(device) else torch.cuda.current_device()
        self.may_be_recorded |= find_stream(number) != DEFAULT
        weakref.finalize(compiled, self._drop, number, module).atexit = False

    def _drop(self, device: int, module: int) -> None:
        if not self.may_be_recorded:
            _dropped.append((device, module))


def unload_dropped(least: int = MOST_DROPPED) -> int:
    """Unload the code of kernels that are gone, if there are so many; how many there were."""
    if len(_dropped) < least or torch.cuda.is_current_stream_capturing():
        return 0
    with _lock:
        modules = [_dropped.popleft() for _ in range(len(_dropped))]
        for device in {device for device, _ in modules}:
            _unload(device, [module for owner, module in modules if owner == device])
        return len(modules)


def _unload(device: int, modules: list[int]) -> None:
    library, mode = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(_RELAXED)
    library.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))
    try:
        with torch.cuda.device(device):
            torch.cuda.default_stream(device).synchronize()
            codes = [library.cuModuleUnload(ctypes.c_void_p(module)) for module in modules]
    finally:
        # The mode from before is what the first call has left there.
        library.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))
    unloaded[device] = unloaded.get(device, 0) + codes.count(0)
    LAUNCH.info("unloaded %d modules from device %d", codes.count(0), device)
