"""The winners of searches: one file per kernel, to read, merge and keep under version control.

Files are replaced as a whole, under a lock, so processes that write at once lose nothing. A disk
that cannot be written costs one warning; winners then live in memory.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from sys import float_info
from typing import Any, cast

from filelock import FileLock, Timeout

from tilesmith.disk.writing import replace_file
from tilesmith.schedule.config import Config
from tilesmith.store.key import StoreKey, now_text, safe_name

LOG = logging.getLogger("tilesmith.autotune")
LOCK_TIMEOUT_S = 10.0
"""Longer than an update takes; after it a winner is kept in memory."""
SCHEMA = 1
MAX_DEPTH = 8
"""Of lists within the values of a Config; the deepest there are have two."""
_NUMBERS = ("median_ms", "spread")
_TEXTS = ("note", "time")


class WinnerFileError(ValueError):
    """A file of winners that cannot be used; the text says which, where and why."""


@dataclass(frozen=True)
class Winner:
    """The Config to use under the conditions of a key."""

    key: StoreKey
    config: Config
    median_ms: float
    spread: float = 0.0
    """Distance of the 80th from the 20th percentile, as a share of the median."""
    note: str = ""
    time: str = ""
    """When it was found."""
    is_stale: bool = False
    """Whether another toolchain found it: a good guess, to be measured again."""

    @property
    def digest(self) -> str:
        """The name of the entry."""
        return self.key.digest

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        rest = {name: getattr(self, name) for name in (*_NUMBERS, *_TEXTS)}
        return {"key": self.key.to_dict(), "config": self.config.config, **rest}


def _require(is_right: bool, place: str, expected: str, found: object) -> None:
    if not is_right:
        shown = repr(found) if len(repr(found)) < 60 else type(found).__name__
        raise WinnerFileError(f"{place}: expected {expected}, found {shown}")


def _object(value: Any, place: str) -> Mapping[str, Any]:
    _require(isinstance(value, dict), place, "an object", value)
    return cast("Mapping[str, Any]", value)


def _only(value: Mapping[str, Any], names: tuple[str, ...], place: str) -> None:
    unknown = [name for name in value if name not in names]
    _require(not unknown, place, f"only the fields {', '.join(names)}", "".join(unknown[:1]))
    missing = [name for name in names if name not in value]
    _require(not missing, place, f"a field {''.join(missing[:1])}", "none")


def _is_number(value: Any) -> bool:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and 0 <= value <= float_info.max


def _check_plain(value: Any, place: str, depth: int = 0) -> None:
    if isinstance(value, list) and depth < MAX_DEPTH:
        for position, item in enumerate(cast("list[Any]", value)):
            _check_plain(item, f"{place}[{position}]", depth + 1)
        return
    is_plain = value is None or isinstance(value, (bool, int, float, str))
    _require(is_plain, place, "a number, a string, true, false, null or a list", value)


def read_key(value: Any, place: str) -> StoreKey:
    """Check the fields of a key."""
    given = _object(value, place)
    names = tuple(field.name for field in fields(StoreKey))
    _only(given, names, place)
    versions = _object(given["toolchain"], f"{place}.toolchain")
    for name, text in {**given, **versions, "toolchain": ""}.items():
        _require(isinstance(text, str), f"{place}.{name}", "a string", text)
    return StoreKey.from_dict(given)


def read_winner(value: Any, place: str) -> Winner:
    """Check one entry; raises ``WinnerFileError`` naming the field that is wrong."""
    given = _object(value, place)
    _only(given, ("key", "config", *_NUMBERS, *_TEXTS), place)
    config = _object(given["config"], f"{place}.config")
    for name, item in config.items():
        _require(name.isidentifier(), f"{place}.config", "names of options", name)
        _check_plain(item, f"{place}.config.{name}")
    for name in _NUMBERS:
        _require(_is_number(given[name]), f"{place}.{name}", "a number >= 0", given[name])
    for name in _TEXTS:
        _require(isinstance(given[name], str), f"{place}.{name}", "a string", given[name])
    rest = {name: given[name] for name in (*_NUMBERS, *_TEXTS)}
    return Winner(read_key(given["key"], f"{place}.key"), Config.from_dict(config), **rest)


def write_text(winners: Mapping[str, Winner]) -> str:
    """A file of winners: sorted, indented, with a newline at its end."""
    entries = {digest: winner.to_dict() for digest, winner in winners.items()}
    return json.dumps({"schema": SCHEMA, "winners": entries}, indent=2, sort_keys=True) + "\n"


def read_text(text: str, path: str | Path) -> dict[str, Winner]:
    """Check a file of winners; raises ``WinnerFileError`` naming the line or field."""
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        where = f"{path}, line {error.lineno}, column {error.colno}"
        raise WinnerFileError(f"{where}: not JSON: {error.msg}") from None
    except RecursionError:
        raise WinnerFileError(f"{path}: too deeply nested") from None
    except ValueError as error:  # a number of thousands of digits
        raise WinnerFileError(f"{path}: {error}") from None
    given = _object(content, str(path))
    _only(given, ("schema", "winners"), str(path))
    _require(given["schema"] == SCHEMA, f"{path}: schema", str(SCHEMA), given["schema"])
    entries = _object(given["winners"], f"{path}: winners").items()
    found = [read_winner(item, f"{path}: winners.{digest[:12]}") for digest, item in entries]
    # Digests follow from the keys, so one that was edited by hand does no harm.
    return {winner.digest: winner for winner in found}


Entries = dict[str, Winner]


@dataclass(frozen=True)
class ImportSummary:
    """What an import did."""

    added: int = 0
    replaced: int = 0
    kept: int = 0
    """Entries that were there already, and are faster or newer."""


class Winners:
    """The winners below a cache folder."""

    def __init__(self, cache_dir: str | Path, team: str = "") -> None:
        self.folder = Path(cache_dir) / "tuning" / "winners"
        self._team = team
        """The URL of a shared cache under this one; empty: there is none."""
        self._memory: Entries = {}
        """What could not be written."""
        self._has_warned = False

    def path(self, kernel: str) -> Path:
        """The file of a kernel."""
        return self.folder / f"{safe_name(kernel)}.json"

    def has_any(self, kernel: str) -> bool:
        """Whether there may be winners of a kernel: cheaper to ask than to make a key."""
        if self._team:  # whoever has none need not load what reaches for it
            layer = import_module("tilesmith.team.layer")
            layer.refresh(self._team, self.folder.parents[1], kernel)
        return bool(self._memory) or self.path(kernel).exists()

    def lookup(self, key: StoreKey) -> Winner | None:
        """The winner under these conditions; one of another toolchain is marked ``is_stale``."""
        entries = self._read(self.path(key.kernel)) | self._memory
        if key.digest in entries:
            return entries[key.digest]
        old = [item for item in entries.values() if item.key.conditions == key.conditions]
        latest = max(old, key=lambda item: (item.time, item.digest), default=None)
        return None if latest is None else replace(latest, is_stale=True)

    def commit(
        self, key: StoreKey, config: Config, median_ms: float, spread: float = 0.0, note: str = ""
    ) -> Winner:
        """Keep a winner, in the place of one found before under the same conditions."""
        winner = Winner(key, config, median_ms, spread, note, now_text())
        try:
            self._update(self.path(key.kernel), lambda entries: {**entries, key.digest: winner})
        except (OSError, Timeout) as error:
            self._memory[key.digest] = winner
            self._warn(f"the winner is kept in memory only: {self.folder}: {error}")
        return winner

    def entries(self, kernel: str | None = None) -> list[Winner]:
        """All winners, by kernel and time."""
        paths = [self.path(kernel)] if kernel else sorted(self.folder.glob("*.json"))
        found = [winner for path in paths for winner in self._read(path).values()]
        if kernel:
            found = [winner for winner in found if winner.key.kernel == kernel]
        return sorted(found, key=lambda item: (item.key.kernel, item.time, item.digest))

    def add(self, winners: Iterable[Winner]) -> int:
        """Keep winners of others, each where there is none; how many were kept."""
        new = {winner.digest: winner for winner in winners}
        added = 0
        for kernel in sorted({winner.key.kernel for winner in new.values()}):
            own = {digest: w for digest, w in new.items() if w.key.kernel == kernel}
            added += len(own.keys() - self._read(self.path(kernel)).keys())
            self._update(self.path(kernel), lambda entries, own=own: {**own, **entries})
        return added

    def clear(self, kernel: str | None = None) -> int:
        """Forget the winners of a kernel, or all; how many there were."""
        removed = self.entries(kernel)
        gone = {winner.digest for winner in removed}
        for path in {self.path(winner.key.kernel) for winner in removed}:
            self._update(path, lambda entries: {k: v for k, v in entries.items() if k not in gone})
        for digest in gone:
            self._memory.pop(digest, None)
        return len(removed)

    def export(self, path: str | Path, kernel: str | None = None) -> int:
        """Write winners to one file; how many."""
        entries = {winner.digest: winner for winner in self.entries(kernel)}
        replace_file(Path(path), write_text(entries).encode())
        return len(entries)

    def import_(self, path: str | Path) -> ImportSummary:
        """Merge a file: of two entries under the same conditions the faster stays.

        The whole file is checked first: ``WinnerFileError`` means that nothing was changed.
        """
        try:
            text = Path(path).read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise WinnerFileError(f"{path}: not UTF-8: {error.reason}") from None
        given = read_text(text, path)
        changes: list[str] = []

        def merge(entries: Entries, kernel: str) -> Entries:
            merged = dict(entries)
            for digest, winner in given.items():
                if winner.key.kernel == kernel:
                    changes.append(_compare(merged.get(digest), winner))
                    merged[digest] = merged[digest] if changes[-1] == "kept" else winner
            return merged

        for kernel in sorted({winner.key.kernel for winner in given.values()}):
            self._update(self.path(kernel), partial(merge, kernel=kernel))
        return ImportSummary(*map(changes.count, ("added", "replaced", "kept")))

    def _update(self, path: Path, change: Callable[[Entries], Entries]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with FileLock(self.folder / ".lock", timeout=LOCK_TIMEOUT_S):
            entries = change(self._read(path, is_replaced=True))
            if entries:
                replace_file(path, write_text(entries).encode(), is_alone=True)
            else:
                path.unlink(missing_ok=True)

    def _read(self, path: Path, *, is_replaced: bool = False) -> Entries:
        """The entries of a file; a damaged one is put aside before it is replaced."""
        try:
            return read_text(path.read_text(encoding="utf-8"), path)
        except FileNotFoundError:
            return {}
        except OSError as error:
            if is_replaced:  # what cannot be read now may be whole
                raise
            self._warn(f"winners cannot be read: {error}")
        except ValueError as error:
            self._warn(f"winners are ignored: {error}")
            if is_replaced:
                path.replace(path.with_suffix(".damaged"))
        return {}

    def _warn(self, text: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            LOG.warning("%s", text)


def _compare(old: Winner | None, new: Winner) -> str:
    if old is None:
        return "added"
    is_better = (new.median_ms, old.time) < (old.median_ms, new.time)
    return "replaced" if is_better else "kept"
