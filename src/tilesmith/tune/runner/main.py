"""The runner as a process: ``python -m tilesmith.tune.runner.main``, started by its parent.

Importing torch is most of its start, so the module imports little itself. What a runner for a GPU
can do meanwhile it does in threads, and without torch: it would be done later anyway, one after the
other, so what goes wrong here is no error yet.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module

from tilesmith.backends.triton.build import build_driver, find_compiler_key, use_cache_dir
from tilesmith.lab.processes.serve import Handler, serve
from tilesmith.tune.runner.build import cache_dir, triton_dir

CUDA_LIBRARY = "libcuda.so.1"


def main(handler: Handler) -> None:
    """Answer jobs until the parent goes away; ``handler`` may wrap that of a RunnerState."""
    gc.enable()
    serve(handler)


def start_warm_up(device: str) -> list[threading.Thread]:
    """Begin to get ready for launches on a device (``cuda:1``); returns at once."""
    # Triton is imported here: two threads that import at the same time may wait for each other.
    use_cache_dir(triton_dir(cache_dir()))
    number = int(device.partition(":")[2] or 0)
    return [_start(lambda: make_context(number)), _start(build_driver), _start(find_compiler_key)]


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


if __name__ == "__main__":
    gc.disable()  # of what is imported nothing is garbage, and looking for it takes a tenth
    for argument in sys.argv[2:]:
        start_warm_up(argument)
    main(import_module("tilesmith.tune.runner.state").RunnerState().handle)
