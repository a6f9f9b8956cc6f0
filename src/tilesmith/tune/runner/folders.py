"""Where children keep what they compile: in our cache folder, away from the user's own kernels.

Parent and children agree on the folder through the environment (``TILESMITH_CACHE_DIR``).
"""

from __future__ import annotations

from pathlib import Path

from tilesmith.settings import Settings


def cache_dir() -> Path:
    """The cache folder of this process."""
    return Path(Settings().cache_dir)


def triton_dir(folder: Path) -> Path:
    """Where Triton's cache of candidates lies in a cache folder."""
    return folder / "tune" / "triton"
