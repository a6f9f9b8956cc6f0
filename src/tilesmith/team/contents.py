"""What objects of a shared cache hold: one winner, or some measurements of one family, as JSON.

Everything that is read is checked as what a stranger wrote: data of known fields, never code.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import Any, cast

from tilesmith.store.journal import from_line
from tilesmith.store.key import now_text, safe_name
from tilesmith.store.winners import Winner, read_text, write_text

SCHEMA = 1
FAMILY_DIGITS = 16
MAX_LINES = 2_000
"""Of one object."""
MAX_SKEW = timedelta(hours=1)
_FIELDS = {"schema", "kernel", "family", "lines"}
_TIME = "%Y-%m-%dT%H:%M:%SZ"


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
        return replace(winner, time=now_text()), f"its time {winner.time!r:.40} is none: taken as now"
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
        raise ValueError(f"{place}: expected an object with the fields {', '.join(sorted(_FIELDS))}")
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
