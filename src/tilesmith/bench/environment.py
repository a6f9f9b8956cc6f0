"""What figures depend on besides the code: versions, device, threads."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import torch

from tilesmith.runtime.device import describe_device, target_of
from tilesmith.store.lookup import installed_versions

PACKAGES = ("tilesmith", "triton", "helion")
DRIVERS = (Path("/proc/driver/nvidia/version"), Path("/sys/module/amdgpu/version"))


def software() -> dict[str, str]:
    """Versions; nothing is asked of a device."""
    found = {"torch": str(torch.__version__), "python": platform.python_version()}
    return found | installed_versions(PACKAGES)


def environment(device: torch.device) -> dict[str, str]:
    """Versions, the device in words, and what its limits follow from."""
    target = target_of(device)
    limits = {"target": str(target), "cores": str(target.num_sms)}
    if target.has_matrix_tiles:
        limits["matrix tiles"] = "amx-bf16"
    if device.type == "cpu" and sys.platform != "win32":
        # Times on a machine that does other things say little.
        limits["load"] = f"{os.getloadavg()[0]:.1f}"
    driver = "" if device.type == "cpu" else driver_version()
    if driver:
        limits["driver"] = driver
    return {"device": describe_device(target), **limits, **software()}


def driver_version(places: Iterable[Path] = DRIVERS) -> str:
    """The version of the kernel's driver for GPUs; empty where the system does not tell."""
    for place in places:
        with suppress(OSError):
            found = re.search(r"(?:^|\s)(\d+(?:\.\d+)+)\b", place.read_text())
            if found is not None:
                return found[1]
    return ""
