"""Every measurement of a kernel, appended to a file of JSON lines that processes share.

Lines that cannot be read are skipped and counted. A disk that cannot be written costs one warning;
the journal then lives in memory.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from math import inf, isfinite
from pathlib import Path
from typing import Any, NamedTuple, cast

from filelock import FileLock, Timeout

from tilesmith.schedule.config import KEYS_BY_NAME, Config
from tilesmith.store.key import StoreKey, now_text, safe_name, shape_distance
from tilesmith.store.outcome import Candidate, Outcome, Resources, Verdict

LOG = logging.getLogger("tilesmith.autotune")
MAX_BYTES = 32 << 20
"""A larger file becomes the old one, of which there is one."""
NUM_SAME, NUM_SIMILAR = 3, 2
"""Configs that a search starts from: of these conditions, and of each other."""
CHANCE_VERDICTS = (Verdict.CRASHED, Verdict.HUNG, Verdict.RUN_ERROR, Verdict.BUILD_TIMEOUT)
"""May be the fault of the machine: believed when they happened twice."""
UNKEPT = (Verdict.FILTERED, Verdict.INFEASIBLE, Verdict.ORDER_DEPENDENT, Verdict.OUT_OF_MEMORY)
"""Depend on more than the conditions, and cost little to find out again."""
LOCK_TIMEOUT_S = 5.0
"""For a rotation; without the lock the file only grows for a while."""
SCHEMA = 1
_TIMES = ("median_ms", "low_ms", "high_ms")


def journal_folder(cache_dir: str | Path) -> Path:
    """The folder of all journals below a cache folder."""
    return Path(cache_dir) / "tuning" / "journal"


class Journal:
    """The measurements of one kernel family, seen from the conditions of ``key``."""

    def __init__(self, cache_dir: str | Path, key: StoreKey, *, max_bytes: int = MAX_BYTES) -> None:
        self.key = key
        self.path = journal_folder(cache_dir) / f"{safe_name(key.kernel)}-{key.family}.jsonl"
        self.is_broken = False
        """Whether it cannot be written any more."""
        self.num_skipped = 0
        """Lines that could not be read, at the last reading."""
        self._max_bytes = max_bytes
        self._memory: list[bytes] = []
        """Lines that could not be written."""

    @property
    def old_path(self) -> Path:
        """The file before this one."""
        return self.path.with_suffix(".old.jsonl")

    def append(self, outcome: Outcome) -> None:
        """Keep a measurement; never raises for want of a disk."""
        line = to_line(self.key, outcome).encode()
        if not self.is_broken:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._rotate()
                append_lines(self.path, line)
                return
            except OSError as error:
                self.is_broken = True
                said = "measurements are kept in memory only: %s cannot be written (%s)"
                LOG.warning(said, self.path, error.strerror or error)
        self._memory.append(line)

    def _rotate(self) -> None:
        if not self.path.exists() or self.path.stat().st_size <= self._max_bytes:
            return
        with suppress(Timeout), FileLock(f"{self.path}.lock", timeout=LOCK_TIMEOUT_S):
            # Another process may have been faster.
            if self.path.exists() and self.path.stat().st_size > self._max_bytes:
                self.path.replace(self.old_path)

    def _lines(self) -> Iterator[bytes]:
        for path in (self.old_path, self.path):
            with suppress(OSError), path.open("rb") as file:
                yield from file
        yield from self._memory

    def _records(self, needle: bytes = b"") -> Iterator[Record]:
        """All that can be read, in the order of time; only lines that contain ``needle``."""
        self.num_skipped = 0
        for line in self._lines():
            if needle not in line or not line.strip():
                continue
            record = from_line(line)
            if record is None:
                self.num_skipped += 1
            else:
                yield record

    def recall(self) -> dict[Config, Outcome]:
        """The latest undisturbed measurement of every Config under these very conditions."""
        found: dict[Config, Outcome] = {}
        accidents: dict[Config, int] = {}
        for record in self._records(self.key.digest.encode()):
            outcome = record.outcome
            is_unkept = outcome.verdict in UNKEPT or outcome.is_disturbed
            if record.key != self.key.digest or is_unkept:
                continue
            if outcome.verdict in CHANCE_VERDICTS:
                accidents[outcome.config] = accidents.get(outcome.config, 0) + 1
                if accidents[outcome.config] < 2:
                    continue
            found[outcome.config] = outcome
        return found

    def similar(self, most: int = 500) -> list[Config]:
        """Good Configs to start from: first of these conditions, then of the nearest shapes.

        ``most`` is how many other shapes are looked at. What was disturbed comes after the rest.
        """
        best: dict[str, dict[Config, tuple[bool, float]]] = {}
        shapes: dict[str, str] = {}
        for record in self._records():
            if (outcome := record.outcome).verdict is not Verdict.OK:
                continue
            times, shapes[record.key] = best.setdefault(record.key, {}), record.shapes
            is_known_quiet = not times.get(outcome.config, (True, inf))[0]
            if not (outcome.is_disturbed and is_known_quiet):
                times[outcome.config] = (outcome.is_disturbed, outcome.median_ms)
        distances = {digest: shape_distance(self.key.shapes, shapes[digest]) for digest in best}
        distances[self.key.digest] = -1.0
        found: list[Config] = []
        nearest = sorted(best, key=lambda digest: (distances[digest], digest))
        for digest in nearest[: most + (self.key.digest in best)]:
            times = best[digest]
            count = NUM_SAME if digest == self.key.digest else NUM_SIMILAR
            found += sorted(times, key=lambda config: (times[config], str(config)))[:count]
        return list(dict.fromkeys(found))


def append_lines(path: Path, lines: bytes) -> None:
    """Add whole lines to a journal; OSError if they could not all be written."""
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        size = os.fstat(handle).st_size
        if size and os.pread(handle, 1, size - 1) != b"\n":
            lines = b"\n" + lines  # one that was torn by a crash must not swallow the first
        # One write: lines of several processes do not mix.
        if os.write(handle, lines) != len(lines):
            raise OSError("the disk is full")
    finally:
        os.close(handle)


def find_journals(cache_dir: str | Path, kernel: str | None = None) -> list[Path]:
    """The journal files of a kernel, or of all."""
    pattern = f"{safe_name(kernel)}-*.jsonl" if kernel else "*.jsonl"
    return sorted(journal_folder(cache_dir).glob(pattern))


class Record(NamedTuple):
    """A line that was read."""

    key: str
    """The digest of the conditions."""
    shapes: str
    outcome: Outcome


def to_line(key: StoreKey, outcome: Outcome) -> str:
    """The measurement with its conditions, newline included."""
    times = {name: getattr(outcome, name) for name in _TIMES}
    values = {
        "schema": SCHEMA,
        "time": now_text(),
        "key": key.digest,
        "kernel": key.kernel,
        "shapes": key.shapes,
        "arguments": key.arguments,
        "config": outcome.config.config,
        "verdict": outcome.verdict.value,
        "reason": outcome.reason,
        **{name: time for name, time in times.items() if isfinite(time)},
        "samples": len(outcome.samples_ms),
        "disturbed": outcome.is_disturbed,
        "build_s": round(outcome.build_s, 4),
        "resources": {k: v for k, v in asdict(outcome.resources).items() if v is not None},
        "predicted_ms": outcome.candidate.predicted_ms,
        "origin": outcome.candidate.origin,
        "target": key.target,
        "device": key.device,
        "regime": key.regime,
        "toolchain": dict(key.toolchain),
    }
    return json.dumps(values, separators=(",", ":")) + "\n"


def from_line(line: str | bytes) -> Record | None:
    """The measurement, or None for a line that is torn, foreign or of another schema."""
    try:
        values = json.loads(line)
        if values["schema"] != SCHEMA:
            return None
        return Record(str(values["key"]), str(values["shapes"]), _outcome(values))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        return None


def _outcome(values: Mapping[str, Any]) -> Outcome:
    config = Config.from_dict(cast("Mapping[str, Any]", values["config"]))
    if any(isinstance(config.get(name), Mapping) for name in KEYS_BY_NAME):
        raise ValueError("only keys of the user's own hold dictionaries")
    predicted = values.get("predicted_ms")
    candidate = Candidate(config, "journal", None if predicted is None else float(predicted))
    verdict = Verdict(values["verdict"])
    median, low, high = (float(values.get(name, inf)) for name in _TIMES)
    if verdict.is_timed and not 0.0 < median < inf:
        raise ValueError("a timed measurement without a time")
    return Outcome(
        candidate,
        verdict,
        str(values.get("reason", "")),
        median_ms=median,
        low_ms=low,
        high_ms=high,
        build_s=float(values.get("build_s", 0.0)),
        resources=Resources(**values.get("resources", {})),
        is_recalled=True,
        is_disturbed=bool(values.get("disturbed", False)),
    )
