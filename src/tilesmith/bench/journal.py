"""The file of a run: a line about it, then one line of JSON for every row, each synced to disk.

A run may be killed at any moment: a torn last line is dropped, everything before it counts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from typing_extensions import Self

from tilesmith.bench.plan import PlanError
from tilesmith.bench.row import Row

RUN = "run"


class JournalError(Exception):
    """A row cannot be put on disk, as when the disk is full; those before it are there."""


@dataclass(frozen=True)
class Results:
    """What a file holds."""

    rows: Sequence[Row]
    """The last of each key, in the order in which keys came first."""
    run: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Environment and options of the run that began it."""
    num_unreadable: int = 0
    """Lines that are neither; a torn last one is such."""

    @property
    def environment(self) -> dict[str, str]:
        """What the run says of itself, and what its rows say of where they ran."""
        software: Mapping[str, str] = self.run.get("software", {})
        found = {"started": str(self.run.get("started", "")), **software}
        for item in self.rows:
            found.update(item.environment)
        return found


def read_journal(path: Path) -> Results:
    """Read what is whole; a file that is not there is an error of the system as usual."""
    run: dict[str, Any] = {}
    rows: dict[tuple[Any, ...], Row] = {}
    num_unreadable = 0
    for line in path.read_bytes().splitlines():
        found = _read_line(line)
        if found is None:
            num_unreadable += 1
        elif isinstance(found, Row):
            rows[found.key] = found
        else:
            run = run or found
    return Results(list(rows.values()), run, num_unreadable)


def _read_line(line: bytes) -> Row | dict[str, Any] | None:
    """A row, what is known of the run, or neither."""
    try:
        found: Any = json.loads(line)
        if isinstance(found, dict) and RUN not in found:
            return Row.from_json(line.decode())
        run: dict[str, Any] = found[RUN]
        parts = [run, run.get("software", {}), run.get("options", {})]
        return run if all(isinstance(part, dict) for part in parts) else None
    except (AttributeError, ValueError, TypeError, RecursionError):
        return None


def check_is_ordinary(path: Path) -> None:
    """PlanError for a folder or device, which rows cannot be read back from."""
    if path.exists() and not path.is_file():
        raise PlanError(f"{path} is no ordinary file; name another one")


class JournalWriter:
    """Appends to a file that no other run writes to meanwhile."""

    def __init__(self, path: Path) -> None:
        self._lock = FileLock(f"{path}.lock")
        try:
            # A lock would wait for a folder that will never be.
            path.parent.mkdir(parents=True, exist_ok=True)
            check_is_ordinary(path)
            path.open("ab").close()
            self._lock.acquire(timeout=0)
        except Timeout:
            raise PlanError(f"{path}: another run is writing to it") from None
        except OSError as error:
            raise PlanError(f"{path} cannot be written to: {error.strerror}") from None
        try:
            self._file = path.open("ab+")
            self._file.seek(0)
            whole = self._file.read().rfind(b"\n") + 1
            self._file.truncate(whole)
            self._file.seek(whole)
            self.is_new = whole == 0
        except BaseException:
            self._lock.release()
            raise

    def write_run(self, facts: Mapping[str, Any]) -> None:
        """Begin the file with what its rows depend on."""
        self._write(json.dumps({RUN: facts}))

    def write(self, row: Row) -> None:
        """Put a row on disk; it is there when this returns."""
        self._write(row.to_json())

    def close(self) -> None:
        """Close the file and give the lock back."""
        with suppress(OSError):  # rows that count are on disk already
            self._file.close()
        self._lock.release()
        Path(self._lock.lock_file).unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, line: str) -> None:
        try:
            self._file.write(line.encode() + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise JournalError(f"{self._file.name} cannot be written: {error.strerror}") from error
