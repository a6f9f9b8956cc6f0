"""Where a child's stdout and stderr go: a nameless file that keeps only the end of the text."""

from __future__ import annotations

import os
import sys
import tempfile
from io import FileIO
from typing import BinaryIO, cast

if sys.platform != "win32":
    import fcntl

LIMIT_BYTES = 1 << 20
TAIL_BYTES = 1 << 14


class OutputLog:
    """A file to hand to a child; ``trim`` it now and then."""

    def __init__(self) -> None:
        self._file = _open_nameless()
        self._earlier = b""

    def fileno(self) -> int:
        """The descriptor to write to."""
        return self._file.fileno()

    def trim(self) -> None:
        """Drop all but the end of a long text."""
        if not self._file.closed and self._size() > LIMIT_BYTES:
            self._earlier = self._end()
            os.ftruncate(self._file.fileno(), 0)

    def tail(self) -> str:
        """The end of what was written."""
        if self._file.closed:
            return ""
        return (self._earlier + self._end())[-TAIL_BYTES:].decode(errors="replace")

    def close(self) -> None:
        """Drop the text."""
        self._file.close()

    def _size(self) -> int:
        return os.fstat(self._file.fileno()).st_size

    def _end(self) -> bytes:
        # The child shares the file position and writes at the end all the same.
        self._file.seek(max(0, self._size() - TAIL_BYTES))
        return self._file.read(TAIL_BYTES)


def _open_nameless() -> BinaryIO:
    try:
        file = _open_in_memory() or tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
        if sys.platform != "win32":
            # Writes go to the end, wherever truncation has put it.
            fcntl.fcntl(file.fileno(), fcntl.F_SETFL, os.O_APPEND)
    except OSError:
        # A full disk must not keep a search from starting; its messages are all that is lost.
        file = FileIO(os.devnull, "r+")
    return cast("BinaryIO", file)


def _open_in_memory() -> FileIO | None:
    if sys.platform != "linux":
        return None
    try:
        return FileIO(os.memfd_create("tilesmith-log"), "r+")
    except OSError:
        return None
