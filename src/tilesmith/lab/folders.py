"""Temporary folders that do not outlive their owners for long, however those end."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex

from filelock import FileLock, Timeout


@contextmanager
def temporary_folder(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """A new folder, removed in the end; what killed processes have left is removed before.

    Its owner holds a lock beside it, which the system takes back when the owner dies.
    """
    folder = (parent or Path(tempfile.gettempdir())) / f"{prefix}{token_hex(6)}"
    with _held(folder.with_suffix(".lock"), -1):
        folder.mkdir(mode=0o700)
        try:
            _sweep(folder.parent, prefix, folder.stat().st_uid)
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _held(lock_path: Path, timeout_s: float) -> Iterator[None]:
    """With the lock, whose file goes too in the end."""
    with FileLock(lock_path, timeout=timeout_s, thread_local=False):  # any thread may end it
        try:
            yield
        finally:
            with suppress(OSError):  # some systems keep files that are open
                lock_path.unlink()


def _sweep(parent: Path, prefix: str, owner: int) -> None:
    """Remove the folders of this user whose lock nobody holds."""
    for lock_path in parent.glob(f"{prefix}*.lock"):
        with suppress(OSError, Timeout):
            if lock_path.is_symlink() or lock_path.stat().st_uid != owner:
                continue
            with _held(lock_path, 0):
                shutil.rmtree(lock_path.with_suffix(""), ignore_errors=True)
