"""What a search ran with: versions of the toolchain, of Python and the kind of system."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

PACKAGES = ("tilesmith", "torch", "triton", "llvmlite", "numpy")


def describe_environment() -> dict[str, str]:
    """Names and versions; packages that are not installed are left out."""
    found = {name: _version(name) for name in PACKAGES}
    system = f"{platform.system()} on {platform.machine()}"
    present = {name: text for name, text in found.items() if text}
    return {**present, "Python": platform.python_version(), "system": system}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
