"""One measurement as a line of JSON, and back. What cannot be read is None, never an exception."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from math import inf, isfinite
from typing import Any, cast

from tilesmith.schedule.config import Config
from tilesmith.tune.outcome import Candidate, Outcome, Resources, Verdict
from tilesmith.tune.store.key import StoreKey

SCHEMA = 1
_TIMES = ("median_ms", "low_ms", "high_ms")


@dataclass(frozen=True)
class Record:
    """A line that was read."""

    key: str
    """The digest of the conditions."""
    shapes: str
    outcome: Outcome


def now_text() -> str:
    """The time, for people."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


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
    hash(config)  # A value that is no plain JSON scalar or list does not belong in a Config.
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
    )
