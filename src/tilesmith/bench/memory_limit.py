"""How much memory there is, and a limit to it, so that a leak fails alone and not the machine."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

import torch

if sys.platform != "win32":
    import resource

SHARE = 0.9
GB = 1e9


def total_gb(device: torch.device) -> float:
    """Memory of a device; that of the machine for the CPU. Infinite where it is not known."""
    if device.type != "cpu":
        return torch.cuda.get_device_properties(device).total_memory / GB
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / GB
    except (AttributeError, OSError, ValueError):
        return float("inf")


def limit_memory(device: torch.device, limit_gb: float) -> None:
    """Limit what this process may have on the CPU; 0: most of the machine's.

    Drivers of GPUs reserve more than there is, so processes that use one are left alone.
    """
    limit = limit_gb or SHARE * total_gb(device) if device.type == "cpu" else float("inf")
    if sys.platform == "win32" or limit == float("inf"):
        return
    with suppress(OSError, ValueError, OverflowError):
        resource.setrlimit(resource.RLIMIT_DATA, (int(limit * GB), int(limit * GB)))
