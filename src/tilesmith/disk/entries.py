"""Objects and modules in folders of the cache.

What is not whole, ours and of its key counts as missing. Folders stay small: what was not used for
longest goes.
"""

from __future__ import annotations

import os
import stat
import struct
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock, Timeout

from tilesmith.diagnostics.logs import topic_log
from tilesmith.disk.trust import FILE_MODE, code_folder, is_ours
from tilesmith.disk.writing import replace_file

CACHE = topic_log("cache")
_HEAD = struct.Struct("<8s32sQ32s")
_MAGIC = b"tsobj\x00\x00\x02"
MAX_BYTES = 512 << 20
"""Of one folder; a kernel's object takes some 10 to 100 KiB."""
SPARED_S = 3600.0
"""What was used within an hour stays: another process may be about to read it."""
_KEPT_SHARE = 0.8
"""Of the limit, after a folder was cut: so that the next entry does not cut it again."""
_TOUCH_S = 600.0
_LOOKS = "08"
_LOCK = ".lock"


def object_key(parts: Iterable[str]) -> str:
    """The name of an entry, from everything its content depends on."""
    return sha256("\0".join(parts).encode()).hexdigest()


class ObjectCache:
    """Objects by key in a folder of the cache."""

    def __init__(self, cache_dir: Path) -> None:
        self.folder = code_folder(cache_dir) / "native"

    def path(self, key: str) -> Path:
        """Where the entry of a key lies."""
        return self.folder / f"{key}.o"

    def get(self, key: str, make: Callable[[], bytes], *, is_new: bool = False) -> bytes:
        """The stored object, or one that is made (always if ``is_new``) and stored for the next."""
        found = None if is_new else self._read(key)
        CACHE.info("object %s %s", self.path(key), "is made" if found is None else "is there")
        if found is None:
            found = make()
            self._write(key, found)
        return found

    def _read(self, key: str) -> bytes | None:
        stored = _read_ours(self.path(key)) or b""
        content = stored[_HEAD.size :]
        if stored[: _HEAD.size] != _head(key, content):
            return None
        note_use(self.path(key))
        return content

    def _write(self, key: str, content: bytes) -> None:
        try:
            replace_file(self.path(key), _head(key, content) + content, FILE_MODE)
        except OSError:  # compiled again by the next process
            return
        keep_small(self.folder, key)


def write_once(path: Path, text: str) -> bool:
    """Make a file have this text; whether it had it before."""
    content = text.encode()
    if _read_ours(path) == content:
        note_use(path)
        return True
    replace_file(path, content, FILE_MODE)
    keep_small(path.parent, path.stem[-16:])
    return False


def _read_ours(path: Path) -> bytes | None:
    """What is in a file; None where there is none or others could have written it."""
    try:
        with path.open("rb") as file:
            return file.read() if is_ours(file.fileno()) else None
    except OSError:
        return None


def _head(key: str, content: bytes) -> bytes:
    """Says whose content it is: a file under another's name must not pass for it."""
    digest = sha256(key.encode()).digest()
    return _HEAD.pack(_MAGIC, digest, len(content), sha256(content).digest())


class _Entry(NamedTuple):
    used: float
    size: int
    path: Path


def note_use(path: Path) -> None:
    """Make it one of those used last; its time of change says when."""
    with suppress(OSError):
        if abs(time.time() - path.stat().st_mtime) > _TOUCH_S:  # a clock may have gone back
            os.utime(path)


def keep_small(folder: Path, name: str, max_bytes: int = MAX_BYTES) -> None:
    """Called for each new file. One in 32 looks at the whole folder: names are digests."""
    if name[:2] < _LOOKS:
        with suppress(OSError):
            cut(folder, max_bytes)


def cut(folder: Path, max_bytes: int) -> int:
    """Remove what was not used for longest until the rest fits well; how many files went."""
    entries = sorted(_entries(folder))
    excess = sum(entry.size for entry in entries) - max_bytes
    if excess <= 0:
        return 0
    excess += int(max_bytes * (1 - _KEPT_SHARE))
    try:
        # Two that cut at once would remove twice as much.
        with FileLock(folder / _LOCK, timeout=0):
            return _remove_oldest(entries, excess, time.time() - SPARED_S)
    except Timeout:
        return 0


def _remove_oldest(entries: list[_Entry], excess: int, spared_from: float) -> int:
    removed = 0
    for entry in entries:
        if excess <= 0 or entry.used > spared_from:
            break
        entry.path.unlink(missing_ok=True)
        excess -= entry.size
        removed += 1
    CACHE.info("%d files that were not used for longest are removed", removed)
    return removed


def _entries(folder: Path) -> list[_Entry]:
    found: list[_Entry] = []
    latest = time.time() + SPARED_S
    for path in folder.iterdir():
        # Another process may remove it meanwhile.
        with suppress(FileNotFoundError):
            status = path.lstat()
            if stat.S_ISREG(status.st_mode) and path.name != _LOCK:
                # A time to come is no time of use: the clock was wrong then, or is wrong now.
                used = status.st_mtime if status.st_mtime <= latest else 0.0
                found.append(_Entry(used, status.st_size, path))
    return found
