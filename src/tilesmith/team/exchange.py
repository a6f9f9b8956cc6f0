"""Push, pull, diff and prune: between the local cache folder and a shared place.

What was measured here is never replaced by what others say. Entries that cannot be trusted are
refused, named, and left where they are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from hashlib import sha256
from pathlib import Path

from filelock import FileLock

from tilesmith.disk.writing import replace_file
from tilesmith.store.journal import find_journals, from_line, journal_folder
from tilesmith.store.key import safe_name
from tilesmith.store.winners import Winner, Winners
from tilesmith.team.contents import (
    Measurements,
    pack_lines,
    pack_winner,
    settle_time,
    unpack_lines,
    unpack_winner,
)
from tilesmith.team.shared_folder import Entry, SharedFolder, TeamCacheError

MAX_STORE_BYTES = 1 << 30
_JOURNAL = re.compile(r"(.+)-([0-9a-f]{16})(\.old)?\.jsonl")
_ORIGIN = "; from "


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
    size = sum(entry.nbytes for entry in shared.all_entries())
    try:
        for winner in Winners(folder).entries(kernel):
            if _ORIGIN not in winner.note:  # what others found is theirs to push
                content = pack_winner(winner)
                size = _within(size + len(content), limit, shared)
                is_new = shared.write(safe_name(winner.key.kernel), "winner", content)
                summary.winners += is_new
                summary.known += not is_new
        for path in find_journals(folder, kernel):
            summary.measurements += _push_journal(folder, path, shared, (size, limit))
    except TeamCacheError as error:
        raise TeamCacheError(
            f"{error}\n{summary.winners} winners and {summary.measurements} measurements were "
            "written before; nothing here was changed: push again later"
        ) from None
    return summary


def _within(size: int, limit: int, shared: SharedFolder) -> int:
    if size > limit:
        raise TeamCacheError(
            f"{shared.url} is full: it would hold {size:,} bytes, its limit is {limit:,}; "
            "`tilesmith cache prune` makes room, --limit allows more"
        )
    return size


def _push_journal(
    folder: Path, path: Path, shared: SharedFolder, room: tuple[int, int]
) -> int:
    """Add the lines of a journal that were not pushed there before; how many."""
    match = _JOURNAL.fullmatch(path.name)
    if match is None or match.group(3):
        return 0
    with FileLock(folder / "tuning" / ".team.lock"):
        marks_path = folder / "tuning" / "team.json"
        marks = _read_marks(marks_path)
        name = f"{shared.url} {path.name}"
        text = path.read_bytes()
        start = marks.get(name, 0)
        new = text[start if start <= len(text) else 0 :]
        whole = new[: new.rfind(b"\n") + 1].decode(errors="replace").splitlines()
        lines = [line for line in whole if from_line(line) is not None]
        size = room[0]
        for content in pack_lines(match.group(1), match.group(2), lines):
            size = _within(size + len(content), room[1], shared)
            shared.write(match.group(1), "journal", content)
        marks[name] = len(text) - len(new) + new.rfind(b"\n") + 1
        replace_file(marks_path, json.dumps(marks, indent=1).encode())
    return len(lines)


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
        try:
            if entry.kind == "winner":
                _offer(best, _read_winner(shared, entry, summary))
            else:
                found = unpack_lines(shared.read(entry), entry.kernel, str(entry))
                summary.measurements += add_lines(folder, found)
        except FileNotFoundError:
            continue  # pruned by someone else meanwhile
        except (ValueError, UnicodeDecodeError) as error:
            summary.refused.append(_refusal(entry, error))
    own = {winner.digest for winner in Winners(folder).entries()}
    new = {digest: winner for digest, winner in best.items() if digest not in own}
    summary.known = len(best) - len(new)
    summary.winners = Winners(folder).add(new.values())
    return summary


def _refusal(entry: Entry, error: Exception) -> str:
    text = str(error)
    return text if text.startswith(str(entry)) else f"{entry}: {text}"


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
    with FileLock(f"{path}.lock"):
        known = {_line_digest(line) for line in _lines_of(path)}
        new = [line for line in found.lines if _line_digest(line) not in known]
        with path.open("ab") as file:
            file.write("".join(f"{line}\n" for line in new).encode())
    return len(new)


def _lines_of(path: Path) -> Iterator[str]:
    if path.exists():
        yield from path.read_text(encoding="utf-8", errors="replace").splitlines()


def _line_digest(line: str) -> str:
    """The same for the same values in any order of fields."""
    try:
        line = json.dumps(json.loads(line), sort_keys=True)
    except (ValueError, RecursionError):
        pass
    return sha256(line.encode(errors="surrogatepass")).hexdigest()


def diff(folder: Path, shared: SharedFolder, kernel: str | None) -> tuple[list[str], Summary]:
    """One line for each winner that only one side has, or both with another config."""
    summary = Summary()
    theirs: dict[str, Winner] = {}
    for entry in shared.all_entries(kernel and safe_name(kernel)):
        if entry.kind == "winner":
            try:
                _offer(theirs, _read_winner(shared, entry, summary))
            except (ValueError, FileNotFoundError) as error:
                summary.refused.append(_refusal(entry, error))
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
    removed: list[tuple[Entry, str]] = []
    kept: list[tuple[str, Entry]] = []
    best: dict[str, tuple[float, Entry]] = {}
    oldest = (datetime.now(timezone.utc) - older_than).strftime("%Y-%m-%dT%H:%M:%SZ")
    for entry in shared.all_entries():
        try:
            content = shared.read(entry)
            if entry.kind == "winner":
                winner = settle_time(unpack_winner(content, entry.kernel, str(entry)))[0]
                time, slower = winner.time, _slower(best, winner, entry)
                if slower is not None:
                    removed.append((slower, "another of the same key is faster"))
                    kept = [(t, e) for t, e in kept if e != slower]
                    if slower == entry:
                        continue
            else:
                lines = unpack_lines(content, entry.kernel, str(entry)).lines
                time = max((str(json.loads(line).get("time", "")) for line in lines), default="")
        except FileNotFoundError:
            continue
        except ValueError as error:
            removed.append((entry, _refusal(entry, error)))
            continue
        if time < oldest:
            removed.append((entry, f"it is of {time}"))
        else:
            kept.append((time, entry))
    removed += [(entry, "there is no room for it") for entry in _too_many(kept, limit)]
    for entry, _ in removed:
        try:
            shared.remove(entry)
        except FileNotFoundError:
            continue
    return removed


def _slower(best: dict[str, tuple[float, Entry]], winner: Winner, entry: Entry) -> Entry | None:
    """Of two objects with one key the one that loses; None for the first."""
    known = best.get(winner.digest)
    if known is None or winner.median_ms < known[0]:
        best[winner.digest] = (winner.median_ms, entry)
        return known[1] if known else None
    return entry


def _too_many(kept: Iterable[tuple[str, Entry]], limit: int) -> list[Entry]:
    ordered = sorted(kept, key=lambda pair: (pair[0], pair[1].name))
    size = sum(entry.nbytes for _, entry in ordered)
    leaving: list[Entry] = []
    while size > limit and ordered:
        _, entry = ordered.pop(0)
        leaving.append(entry)
        size -= entry.nbytes
    return leaving
