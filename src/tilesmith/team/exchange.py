"""Push, pull, diff and prune: between the local cache folder and a shared place.

An object holds one winner, or some measurements of one family, as JSON. All that is read is checked
as what a stranger wrote: data of known fields, never code. What was measured here is never replaced
by what others say. Entries that cannot be trusted are refused, named, and left where they are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

from filelock import FileLock

from tilesmith.disk.writing import replace_file
from tilesmith.store.journal import append_lines, find_journals, from_line, journal_folder
from tilesmith.store.key import now_text, safe_name
from tilesmith.store.winners import Winner, Winners, read_text, write_text
from tilesmith.team.shared_folder import Entry, SharedFolder, TeamCacheError, object_name

SCHEMA = 1
FAMILY_DIGITS = 16
MAX_LINES = 2_000
"""Of one object."""
MAX_SKEW = timedelta(hours=1)
_FIELDS = {"schema", "kernel", "family", "lines"}
_TIME = "%Y-%m-%dT%H:%M:%SZ"
MAX_STORE_BYTES = 1 << 30
LOCK_TIMEOUT_S = 60.0
"""Longer than an exchange takes; whoever holds a lock for longer hangs."""
_JOURNAL = re.compile(r"(.+)-([0-9a-f]{16})(\.old)?\.jsonl")
_ORIGIN = "; from "


@dataclass(frozen=True)
class Measurements:
    """Lines of the journal of one family."""

    kernel: str
    family: str
    lines: tuple[str, ...]


def pack_winner(winner: Winner) -> bytes:
    """An object with one winner."""
    return write_text({winner.digest: winner}).encode()


def unpack_winner(content: bytes, kernel: str, place: str) -> Winner:
    """The winner of an object; ValueError says what is wrong with it."""
    found = list(read_text(content.decode(), place).values())
    if len(found) != 1:
        raise ValueError(f"{place}: it has {len(found)} winners, not one")
    (winner,) = found
    if safe_name(winner.key.kernel) != kernel:
        raise ValueError(f"{place}: it is of another kernel, {winner.key.kernel!r:.60}")
    if not winner.median_ms > 0.0:
        raise ValueError(f"{place}: it took no time at all")
    return winner


def settle_time(winner: Winner, now: datetime | None = None) -> tuple[Winner, str]:
    """A winner of the future is one of now, and a line says so: a clock is wrong somewhere."""
    now = now or datetime.now(timezone.utc)
    try:
        found = datetime.strptime(winner.time, _TIME).replace(tzinfo=timezone.utc)
    except ValueError:
        return replace(
            winner, time=now_text()
        ), f"its time {winner.time!r:.40} is none: taken as now"
    if found <= now + MAX_SKEW:
        return winner, ""
    ahead = found - now
    text = f"{ahead.days} days" if ahead.days else f"{ahead.seconds // 60} minutes"
    line = f"it was found {text} from now: a clock is wrong; taken as of now"
    return replace(winner, time=now.strftime(_TIME)), line


def pack_lines(kernel: str, family: str, lines: Sequence[str]) -> Iterator[bytes]:
    """Objects with measurements, each of so many lines at most."""
    for start in range(0, len(lines), MAX_LINES):
        values = [json.loads(line) for line in lines[start : start + MAX_LINES]]
        content = {"schema": SCHEMA, "kernel": kernel, "family": family, "lines": values}
        yield (json.dumps(content, separators=(",", ":"), sort_keys=True) + "\n").encode()


def unpack_lines(content: bytes, kernel: str, place: str) -> Measurements:
    """The measurements of an object; ValueError says what is wrong with it."""
    try:
        given: Any = json.loads(content)
    except RecursionError:
        raise ValueError(f"{place}: too deeply nested") from None
    if not isinstance(given, dict) or set(cast("dict[str, Any]", given)) != _FIELDS:
        raise ValueError(
            f"{place}: expected an object with the fields {', '.join(sorted(_FIELDS))}"
        )
    fields = cast("Mapping[str, Any]", given)
    if fields["schema"] != SCHEMA:
        raise ValueError(f"{place}: schema: expected {SCHEMA}, found {fields['schema']!r:.20}")
    if not isinstance(fields["kernel"], str) or safe_name(fields["kernel"]) != kernel:
        raise ValueError(f"{place}: it is of another kernel, {fields['kernel']!r:.60}")
    family = fields["family"]
    if not (isinstance(family, str) and len(family) == FAMILY_DIGITS and family.isalnum()):
        raise ValueError(f"{place}: family: expected {FAMILY_DIGITS} digits")
    lines = fields["lines"]
    if not isinstance(lines, list) or len(cast("list[Any]", lines)) > MAX_LINES:
        raise ValueError(f"{place}: lines: expected a list of at most {MAX_LINES}")
    texts = [json.dumps(line, separators=(",", ":")) for line in cast("list[Any]", lines)]
    for number, text in enumerate(texts, 1):
        if from_line(text) is None:
            raise ValueError(f"{place}: line {number} is no measurement")
    return Measurements(fields["kernel"], family, tuple(texts))


@dataclass
class Summary:
    """What an exchange did."""

    winners: int = 0
    measurements: int = 0
    known: int = 0
    """Winners that the other side had already."""
    refused: list[str] = field(default_factory=list[str])
    """Entries that were not taken, and why."""
    notes: list[str] = field(default_factory=list[str])


def push(
    folder: Path, shared: SharedFolder, kernel: str | None, limit: int = MAX_STORE_BYTES
) -> Summary:
    """Add what is here to the shared place. TeamCacheError says how much was written before it."""
    summary = Summary()
    room = _Room(shared, limit)
    try:
        for winner in Winners(folder).entries(kernel):
            if _ORIGIN not in winner.note:  # what others found is theirs to push
                name, content = safe_name(winner.key.kernel), pack_winner(winner)
                is_new = room.take(name, "winner", content)
                summary.winners += is_new
                summary.known += not is_new
        for path in find_journals(folder, kernel):
            summary.measurements += _push_journal(folder, path, room)
    except TeamCacheError as error:
        raise TeamCacheError(
            f"{error}\n{summary.winners} winners and {summary.measurements} measurements were "
            "written before; nothing here was changed: push again later"
        ) from None
    return summary


class _Room:
    """A shared place and how much it may hold: what is there already takes no more."""

    def __init__(self, shared: SharedFolder, limit: int) -> None:
        self.shared, self._limit = shared, limit
        entries = list(shared.all_entries())
        self._known = {(entry.kernel, entry.name) for entry in entries}
        self._size = sum(entry.nbytes for entry in entries)

    def take(self, kernel: str, kind: str, content: bytes) -> bool:
        """Write an object; whether it was not there."""
        if (kernel, object_name(kind, content)) in self._known:
            return False
        size = self._size + len(content)
        if size > self._limit:
            raise TeamCacheError(
                f"{self.shared.url} is full: it would hold {size:,} bytes, its limit is "
                f"{self._limit:,}; `tilesmith cache prune` makes room, --limit allows more"
            )
        self._size = size
        return self.shared.write(kernel, kind, content)


def _push_journal(folder: Path, path: Path, room: _Room) -> int:
    """Add the lines of a journal that were not pushed there before; how many."""
    match = _JOURNAL.fullmatch(path.name)
    if match is None or match.group(3):
        return 0
    with FileLock(folder / "tuning" / ".team.lock", timeout=LOCK_TIMEOUT_S):
        marks_path = folder / "tuning" / "team.json"
        marks = _read_marks(marks_path)
        name = f"{room.shared.url} {path.name}"
        text = path.read_bytes()
        start = marks.get(name, 0)
        new = text[start if start <= len(text) else 0 :]
        whole = new[: new.rfind(b"\n") + 1].decode(errors="replace").splitlines()
        lines = [line for line in whole if from_line(line) is not None]
        packed = pack_lines(match.group(1), match.group(2), lines)
        taken = [json.loads(one) for one in packed if room.take(match.group(1), "journal", one)]
        marks[name] = len(text) - len(new) + new.rfind(b"\n") + 1
        replace_file(marks_path, json.dumps(marks, indent=1).encode(), is_alone=True)
    return sum(len(found["lines"]) for found in taken)


def _read_marks(path: Path) -> dict[str, int]:
    """How far each journal was pushed where; a damaged file only means to push again."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return {str(k): int(v) for k, v in found.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def pull(folder: Path, shared: SharedFolder, kernel: str | None) -> Summary:
    """Take over what is there and not here."""
    summary = Summary()
    best: dict[str, Winner] = {}
    for entry in shared.all_entries(kernel and safe_name(kernel)):
        with _refusing(entry, summary.refused):
            if entry.kind == "winner":
                _offer(best, _read_winner(shared, entry, summary))
            else:
                found = unpack_lines(shared.read(entry), entry.kernel, str(entry))
                summary.measurements += add_lines(folder, found)
    own = {winner.digest for winner in Winners(folder).entries()}
    new = {digest: winner for digest, winner in best.items() if digest not in own}
    summary.known = len(best) - len(new)
    summary.winners = Winners(folder).add(new.values())
    return summary


@contextmanager
def _refusing(entry: Entry, refused: list[str]) -> Iterator[None]:
    """Notes why an entry cannot be taken; one that is gone was pruned by someone else."""
    try:
        yield
    except FileNotFoundError:
        return
    except ValueError as error:
        text = str(error)
        refused.append(text if text.startswith(str(entry)) else f"{entry}: {text}")


def _read_winner(shared: SharedFolder, entry: Entry, summary: Summary) -> Winner:
    winner = unpack_winner(shared.read(entry), entry.kernel, str(entry))
    winner, line = settle_time(winner)
    if line:
        summary.notes.append(f"{entry}: {line}")
    return replace(winner, note=f"{winner.note}{_ORIGIN}{shared.url}")


def _offer(best: dict[str, Winner], winner: Winner) -> None:
    known = best.get(winner.digest)
    if known is None or winner.median_ms < known.median_ms:
        best[winner.digest] = winner


def add_lines(folder: Path, found: Measurements) -> int:
    """Append measurements that the local journal of their family lacks; how many."""
    path = journal_folder(folder) / f"{safe_name(found.kernel)}-{found.family}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{path}.lock", timeout=LOCK_TIMEOUT_S):
        known = {_line_digest(line) for line in _lines_of(path)}
        new = [line for line in found.lines if _line_digest(line) not in known]
        if new:
            append_lines(path, "".join(f"{line}\n" for line in new).encode())
    return len(new)


def _lines_of(path: Path) -> Iterator[str]:
    if path.exists():
        yield from path.read_text(encoding="utf-8", errors="replace").splitlines()


def _line_digest(line: str) -> str:
    """The same for the same values in any order of fields."""
    with suppress(ValueError, RecursionError):
        line = json.dumps(json.loads(line), sort_keys=True)
    return sha256(line.encode(errors="surrogatepass")).hexdigest()


def diff(folder: Path, shared: SharedFolder, kernel: str | None) -> tuple[list[str], Summary]:
    """One line for each winner that only one side has, or both with another config."""
    summary = Summary()
    theirs: dict[str, Winner] = {}
    for entry in shared.all_entries(kernel and safe_name(kernel)):
        if entry.kind == "winner":
            with _refusing(entry, summary.refused):
                _offer(theirs, _read_winner(shared, entry, summary))
    ours = {winner.digest: winner for winner in Winners(folder).entries(kernel)}
    lines: list[str] = []
    for digest, winner in {**theirs, **ours}.items():
        here, there = ours.get(digest), theirs.get(digest)
        mark = "here " if there is None else "there" if here is None else "both "
        if here is None or there is None or here.config != there.config:
            times = " / ".join(f"{one.median_ms:.4g} ms" for one in (here, there) if one)
            key = winner.key
            lines.append(f"{mark} {key.kernel}({key.arguments}) on {key.device}: {times}")
    return sorted(lines), summary


def prune(
    shared: SharedFolder, older_than: timedelta, limit: int = MAX_STORE_BYTES
) -> list[tuple[Entry, str]]:
    """Take away what is damaged, old, slower than another of the same key, or too much.

    What was taken, and why. Of what is left the oldest goes until all is within the limit.
    """
    oldest = (datetime.now(timezone.utc) - older_than).strftime("%Y-%m-%dT%H:%M:%SZ")
    removed: dict[Entry, str] = {}
    times: dict[Entry, str] = {}
    best: dict[str, tuple[float, Entry]] = {}
    for entry in shared.all_entries():
        refused: list[str] = []
        with _refusing(entry, refused):
            times[entry] = _time_of(shared, entry, best, removed)
        if refused:
            removed[entry] = refused[0]
        elif times.get(entry, oldest) < oldest:
            removed[entry] = f"it is of {times[entry]}"
    kept = [(time, entry) for entry, time in times.items() if entry not in removed]
    removed |= dict.fromkeys(_too_many(kept, limit), "there is no room for it")
    for entry in removed:
        with suppress(FileNotFoundError):
            shared.remove(entry)
    return list(removed.items())


def _time_of(
    shared: SharedFolder,
    entry: Entry,
    best: dict[str, tuple[float, Entry]],
    removed: dict[Entry, str],
) -> str:
    """When it was found; of two winners with one key the slower is noted as removed."""
    content = shared.read(entry)
    if entry.kind != "winner":
        lines = unpack_lines(content, entry.kernel, str(entry)).lines
        return max((str(json.loads(line).get("time", "")) for line in lines), default="")
    winner = settle_time(unpack_winner(content, entry.kernel, str(entry)))[0]
    known, own = best.get(winner.digest), (winner.median_ms, entry)
    if known is not None:
        removed[max(known, own, key=lambda pair: pair[0])[1]] = "another of the same key is faster"
    best[winner.digest] = own if known is None else min(known, own, key=lambda pair: pair[0])
    return winner.time


def _too_many(kept: Iterable[tuple[str, Entry]], limit: int) -> list[Entry]:
    ordered = sorted(kept, key=lambda pair: (pair[0], pair[1].name))
    size = sum(entry.nbytes for _, entry in ordered)
    leaving: list[Entry] = []
    while size > limit and ordered:
        _, entry = ordered.pop(0)
        leaving.append(entry)
        size -= entry.nbytes
    return leaving
