"""What compiled a measured kernel: versions, and a digest of our own compiling code."""

from __future__ import annotations

import platform
from functools import lru_cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import tilesmith.schedule

PACKAGES = ("torch", "triton", "llvmlite")
COMPILING_FOLDERS = ("ir", "analysis", "passes", "schedule", "frontend", "backends", "compiler")
"""Where a change may change generated code, or what a Config means."""


@lru_cache(maxsize=1)
def toolchain() -> tuple[tuple[str, str], ...]:
    """Names and versions. Torch's version names its CUDA or HIP, too: ``2.11.0+cu128``."""
    installed = [(name, found) for name in PACKAGES if (found := _version(name))]
    own = f"{_version('tilesmith') or 'source'}+{_digest_sources()}"
    return (("tilesmith", own), *installed, ("machine", platform.machine()))


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _digest_sources() -> str:
    root = Path(tilesmith.schedule.__file__).parent.parent
    files = sorted(file for folder in COMPILING_FOLDERS for file in (root / folder).rglob("*.py"))
    digest = sha256()
    for file in files:
        digest.update(file.relative_to(root).as_posix().encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()[:8]
