"""What a runner for a GPU can do while torch is being imported: in threads, and without torch.

All of it would be done later anyway, one after the other; so what goes wrong here is no error yet.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from contextlib import suppress

from tilesmith.backends.triton.build import build_driver, find_compiler_key, use_cache_dir
from tilesmith.tune.runner.build import cache_dir, triton_dir

CUDA_LIBRARY = "libcuda.so.1"


def start_warm_up(device: str) -> list[threading.Thread]:
    """Begin to get ready for launches on a device (``cuda:1``); returns at once."""
    # Triton is imported here: two threads that import at the same time may wait for each other.
    use_cache_dir(triton_dir(cache_dir()))
    number = int(device.partition(":")[2] or 0)
    return [
        _start(lambda: make_context(number)),
        _start(build_driver),
        _start(find_compiler_key),
    ]


def make_context(number: int) -> None:
    """Make the context of a device that torch will use: the process's primary one."""
    driver = ctypes.CDLL(CUDA_LIBRARY)
    device, context = ctypes.c_int(), ctypes.c_void_p()
    if driver.cuInit(0) == 0 and driver.cuDeviceGet(ctypes.byref(device), number) == 0:
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)


def _start(work: Callable[[], None]) -> threading.Thread:
    def run() -> None:
        with suppress(Exception):
            work()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread
