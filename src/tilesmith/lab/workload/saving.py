"""Writes captured memory to a file that a runner loads: tensors and numbers only, never code.

Each region once, with its role; one that repeats eight bytes all over is kept as these.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from tilesmith.lab.workload.capture import Captured, CaptureError, Region, Role

VERSION = 1
_CHUNK = 1 << 20
_WORD = 8
_PREFIX = "tilesmith-workload-"
_MEMORY_DISK = Path("/dev/shm")
_HEADROOM = 2
"""A disk in memory must have room for that many times the workload."""


def save(captured: Captured, folder: Path) -> Path:
    """Write the regions of a capture (those that its basis lacks) and give the file's name."""
    saved = [_saved_region(region, role) for region, role in captured.regions]
    number = captured.first_number
    return _write({"first": number, "regions": saved}, f"regions-{number}-", folder)


def save_expected(results: Sequence[torch.Tensor], folder: Path) -> Path:
    """Write what the user's own function gives, for ``load_expected``."""
    plain = [result.detach().cpu().contiguous().clone() for result in results]
    return _write({"expected": plain}, "expected-", folder)


def _write(content: dict[str, Any], prefix: str, folder: Path) -> Path:
    """Write a new file; a disk without room is a reason not to search, no error of the caller."""
    try:
        handle, name = tempfile.mkstemp(".pt", prefix, folder)
        with os.fdopen(handle, "wb") as file:
            torch.save({"version": VERSION, **content}, file)
    except (OSError, RuntimeError) as error:
        # torch closes its archive after a failure, and then fails with less to say.
        cause = error.__context__ if isinstance(error.__context__, OSError) else error
        raise CaptureError(f"the arguments cannot be written to {folder}: {cause}") from error
    return Path(name)


@contextmanager
def workload_folder(nbytes: int) -> Iterator[Path]:
    """A folder for files of so many bytes, in memory if there is room; removed in the end.

    What processes that were killed have left behind is removed too.
    """
    try:
        parent = _roomy_place(nbytes)
        _remove_leftovers(parent)
        folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=parent))
    except OSError as error:
        raise CaptureError(f"there is no place to write the arguments to: {error}") from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _roomy_place(nbytes: int) -> Path:
    is_there = _MEMORY_DISK.is_dir() and os.access(_MEMORY_DISK, os.W_OK)
    if is_there and shutil.disk_usage(_MEMORY_DISK).free > _HEADROOM * nbytes:
        return _MEMORY_DISK
    return Path(tempfile.gettempdir())


def _remove_leftovers(parent: Path) -> None:
    for folder in parent.glob(f"{_PREFIX}*"):
        owner = re.match(rf"{_PREFIX}(\d+)-", folder.name)
        if owner is not None and not _is_running(int(owner[1])):
            shutil.rmtree(folder, ignore_errors=True)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _saved_region(region: Region, role: Role) -> dict[str, Any]:
    fill = find_fill(region)
    return {
        "nbytes": region.nbytes,
        "fill": fill,
        "content": region.read() if fill is None else None,
        "is_read": role.is_read,
        "is_written": role.is_written,
        "is_fresh": role.is_fresh,
    }


def find_fill(region: Region) -> int | None:
    """The eight bytes that fill what is known of a region, as a signed integer."""
    if not region.pieces:
        return 0
    offset, content = region.pieces[0]
    is_odd = offset % _WORD or content.storage_offset() % _WORD
    if len(region.pieces) > 1 or content.numel() < _WORD or is_odd:
        return None
    count, rest = divmod(content.numel(), _WORD)
    words = content[: count * _WORD].view(torch.int64)
    first = words[:1]
    if not all(bool((chunk == first).all()) for chunk in words.split(_CHUNK)):
        return None
    is_same = torch.equal(content[count * _WORD :], first.view(torch.uint8)[:rest])
    return int(first) if is_same else None
