"""Which Triton is installed, without importing it."""

from __future__ import annotations

from functools import lru_cache
from importlib import metadata

OLDEST_SUPPORTED = (3, 6)


@lru_cache(maxsize=1)
def installed_version() -> tuple[int, int]:
    """Major and minor version; the oldest that is supported where there is none."""
    try:
        major, minor = metadata.version("triton").split(".")[:2]
    except metadata.PackageNotFoundError:
        return OLDEST_SUPPORTED
    return int(major), int(minor)
