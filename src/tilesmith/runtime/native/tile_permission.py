"""Asks Linux for the tile registers of AMX, which a process may use only when granted."""

from __future__ import annotations

import ctypes
import platform
import sys

_ARCH_PRCTL = 158
_REQUEST_PERMISSION = 0x1023
_TILE_DATA = 18
"""The number of the tile registers among the parts of the processor's state."""


def request_tile_registers() -> bool:
    """Whether all threads of this process may use tile registers from now on."""
    if not sys.platform.startswith("linux") or platform.machine() != "x86_64":
        return False
    if sys.maxsize < 1 << 32:
        return False
    try:
        arguments = map(ctypes.c_long, (_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA))
        return ctypes.CDLL(None).syscall(*arguments) == 0
    except (OSError, AttributeError):
        return False
