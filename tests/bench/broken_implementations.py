"""Implementations of doubling, each with one thing wrong; only worker processes call them."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import torch

CALLS: list[torch.Tensor] = []
PERMISSION = "TILESMITH_TESTS_PERMISSION"
"""Variable with the path of a file that is not there yet."""
GARBAGE = "\0\xff{not a row}\n" * 1000


def raises(x: torch.Tensor) -> torch.Tensor:
    raise FileNotFoundError("cutlass/config.h, \udce9")


def strays(x: torch.Tensor) -> torch.Tensor:
    raise asyncio.CancelledError("by its own loop")


def forgets(x: torch.Tensor) -> torch.Tensor:
    """Right until it is timed."""
    CALLS.append(x)
    return x * 2 if len(CALLS) < 4 else x


def segfaults(x: torch.Tensor) -> torch.Tensor:
    ctypes.string_at(0)
    return x


def hangs(x: torch.Tensor) -> torch.Tensor:
    time.sleep(1000)
    return x


def waits_for_permission(x: torch.Tensor) -> torch.Tensor:
    while not Path(os.environ[PERMISSION]).exists():
        time.sleep(0.02)
    return x * 2


def wrong(x: torch.Tensor) -> torch.Tensor:
    return x * 2.001


def takes_all_memory(x: torch.Tensor) -> torch.Tensor:
    while True:
        CALLS.append(torch.ones(1 << 26, device=x.device))


def prints_garbage(x: torch.Tensor) -> torch.Tensor:
    sys.stdout.write(GARBAGE)
    os.write(2, GARBAGE.encode("latin-1"))
    return x * 2


def writes_to_every_descriptor(x: torch.Tensor) -> torch.Tensor:
    for descriptor in range(1, 64):
        with suppress(OSError):
            os.write(descriptor, b"garbage")
    return x * 2


def exits(x: torch.Tensor) -> torch.Tensor:
    sys.exit(0)


def exits_at_once(x: torch.Tensor) -> torch.Tensor:
    os._exit(0)


def kills_itself(x: torch.Tensor) -> torch.Tensor:
    os.kill(os.getpid(), signal.SIGKILL)
    return x


def reads_outside(x: torch.Tensor) -> torch.Tensor:
    far = torch.full_like(x, 1 << 40, dtype=torch.int64)
    return x[far] * 2


def waits_for_its_result(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.sum().item() else x + x
