"""A run's folder for files between processes; those of runs that were killed go at the next start.

A run holds a lock beside its folder, which the system takes from a process that dies: unlike a
process number, it cannot be mistaken for that of another one, or of another container.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from secrets import token_hex

from filelock import FileLock, Timeout

from tilesmith.bench.plan import PlanError

PREFIX = "tilesmith_bench_"


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A new folder, removed in the end; what killed runs have left is removed before."""
    with ExitStack() as stack:
        try:
            folder = Path(tempfile.gettempdir()) / f"{PREFIX}{token_hex(6)}"
            stack.enter_context(_held(folder.with_suffix(".lock"), -1))
            folder.mkdir(mode=0o700)
        except OSError as error:
            raise PlanError(f"no temporary folder: {error}; set TMPDIR to one with room") from None
        try:
            _sweep(folder.parent, folder.stat().st_uid)
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _held(lock_path: Path, timeout_s: float) -> Iterator[None]:
    """With the lock, whose file goes too in the end."""
    with FileLock(lock_path, timeout=timeout_s):
        try:
            yield
        finally:
            with suppress(OSError):  # some systems keep files that are open
                lock_path.unlink()


def _sweep(parent: Path, owner: int) -> None:
    """Remove the folders of this user whose lock nobody holds."""
    for lock_path in parent.glob(f"{PREFIX}*.lock"):
        with suppress(OSError, Timeout):
            if lock_path.is_symlink() or lock_path.stat().st_uid != owner:
                continue
            with _held(lock_path, 0):
                shutil.rmtree(lock_path.with_suffix(""), ignore_errors=True)
