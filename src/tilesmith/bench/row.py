"""One line of a benchmark's file: what one implementation did with one input; averages of rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from enum import Enum
from math import exp, inf, isfinite, log
from typing import Any

NoneType = type(None)

INTERPRETED = "nothing was compiled: the reference interpreter ran"
"""A row's fallback where that is so."""
RATE_CLASSES = {
    "float64": {"fp64": "f64"},
    "float32": {"fp32": "f32", "tf32": "tf32"},
    "bfloat16": {"16-bit": "f16"},
    "float16": {"16-bit": "f16"},
    "float8_e4m3fn": {"fp8": "f8"},
    "float8_e5m2": {"fp8": "f8"},
    "int8": {"int8": "i8"},
}
"""By type of elements: what rates of products of such are called, and for the device model."""
_FORMS: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "bool": (bool,),
    "float | None": (float, int, NoneType),
    "int | None": (int, NoneType),
    **dict.fromkeys(("dict[str, str]", "dict[str, float]"), (dict,)),
    **dict.fromkeys(("str", "Owner", "Status", "Cause"), (str,)),
}
"""How values are read from JSON, by annotation."""


class Owner(str, Enum):
    """Whose implementation it is."""

    OURS = "ours"
    THEIRS = "theirs"


class Status(str, Enum):
    """How the job of a row ended."""

    OK = "ok"
    FAILED = "failed"
    """The implementation raised, crashed, hung, ran out of memory or gave a wrong result."""
    HARNESS_FAILED = "harness failed"
    """Something of the harness itself: inputs, reference or worker."""
    UNAVAILABLE = "unavailable"
    """It is not installed, or not for this device or type; no failure of anyone."""


class Cause(str, Enum):
    """Why it did not end well."""

    NONE = ""
    EXCEPTION = "exception"
    CRASH = "crash"
    HANG = "hang"
    OUT_OF_MEMORY = "out of memory"
    WRONG_RESULT = "wrong result"
    NOT_INSTALLED = "not installed"
    NOT_SUPPORTED = "not supported"


@dataclass(frozen=True)
class Row:
    """What one implementation did with one input; unknown numbers are None, never zero."""

    operator: str
    input_id: int
    input_label: str
    implementation: str
    owner: Owner
    status: Status
    device: str = ""
    dtype: str = ""
    cause: Cause = Cause.NONE
    reason: str = ""
    """In words, with the last lines of what it printed if it died."""
    stage: str = ""
    """What its process was doing when it died or was ended."""
    stage_s: float | None = None
    """For how long it had been doing that."""
    latency_ms: float | None = None
    """Median of one call."""
    spread: float | None = None
    """Half of the middle half of the samples, over the median."""
    noise_floor: float | None = None
    """How far the same callable measured twice, interleaved, was apart, over the median."""
    baseline_ms: float | None = None
    """Median of the eager form, timed in turns with it in the same process."""
    baseline_spread: float | None = None
    """As ``spread``, of the eager form."""
    speedup: float | None = None
    speedup_spread: float | None = None
    """As ``spread``, of the ratios of the rounds: what moves both together does not count."""
    tflops: float | None = None
    gbps: float | None = None
    error: float | None = None
    """Relative norm of the error against float64."""
    error_share: float | None = None
    """Largest error of an element over what it may be; at most 1 if right."""
    baseline_error: float | None = None
    compile_s: float | None = None
    """Until the first result."""
    tune_s: float | None = None
    num_configs: int | None = None
    config: str = ""
    """As it can be pasted; the one that ran."""
    code: str = ""
    """What it became, of our kernels; the beginning of what is long."""
    fallback: str = ""
    """Why that is not the first choice, or why nothing was compiled."""
    timer: str = ""
    """How it was timed: graph or events, cold or warm, or on the host."""
    roofline_ms: float | None = None
    predicted_ms: float | None = None
    limiter: str = ""
    """What takes longest in what the model predicts for one launch of each of our kernels."""
    samples: int | None = None
    """Those that count."""
    disturbed_samples: int | None = None
    """On the host: samples of all kinds during which others had the cores."""
    is_disturbed: bool = False
    """Whether too few samples without that are left: the time is the scheduler's too."""
    is_speedup_disturbed: bool = False
    """Whether too few rounds without that are left in which the baseline ran as well."""
    seconds: float | None = None
    """Of the whole process, or of its part of one that it shared."""
    phases: dict[str, float] = field(default_factory=dict[str, float])
    """Seconds of a shared process by what it did; what was done for all, in equal parts."""
    environment: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def key(self) -> tuple[str, int, str, str, str]:
        """What a resumed run recognises it by."""
        return (self.operator, self.input_id, self.implementation, self.dtype, self.device)

    @property
    def blame(self) -> str:
        """In the words of tables: "ours failed", "theirs failed", "harness failed" or nothing."""
        if self.status is Status.FAILED:
            return f"{self.owner.value} failed"
        return self.status.value if self.status is Status.HARNESS_FAILED else ""

    def to_json(self) -> str:
        """One line without the unknown."""
        known = {name: value for name, value in asdict(self).items() if value not in (None, "")}
        return json.dumps(known)

    @classmethod
    def from_json(cls, line: str) -> Row:
        """Read a line; fields of later versions are passed over. ValueError for other forms."""
        found: dict[str, Any] = json.loads(line)
        known = {item.name: found[item.name] for item in fields(cls) if item.name in found}
        for name, value in known.items():
            is_number = not isinstance(value, float) or isfinite(value)
            if not is_number or not isinstance(value, _FORMS[_KINDS[name]]):
                raise ValueError(f"{name} is {value!r}")
        if not all(isinstance(text, str) for text in known.get("environment", {}).values()):
            raise ValueError("the environment is not of words")
        for name, kind in (("owner", Owner), ("status", Status), ("cause", Cause)):
            if name in known:
                known[name] = kind(known[name])
        return cls(**known)


_KINDS = {item.name: str(item.type) for item in fields(Row)}


@dataclass(frozen=True)
class Average:
    """A geometric mean, over how many rows, out of how many that could have been there."""

    value: float | None
    count: int
    total: int
    num_disturbed: int = 0
    """How many of those that are missing had a value, but a disturbed one."""

    def __str__(self) -> str:
        value = "-" if self.value is None else f"{self.value:.2f}x"
        return f"{value} ({self.count_text})"

    @property
    def count_text(self) -> str:
        """Over how many, and how many were left out for being disturbed."""
        left_out = f", {self.num_disturbed} disturbed" if self.num_disturbed else ""
        return f"{self.count} of {self.total}{left_out}"


def geomean(values: Sequence[float]) -> float | None:
    """The geometric mean; None of nothing."""
    return exp(sum(map(log, values)) / len(values)) if values else None


def speedup_of(row: Row) -> float | None:
    """The speedup of a row that ended well and was not disturbed."""
    if row.status is not Status.OK or row.speedup is None or is_speedup_disturbed(row):
        return None
    return row.speedup if 0.0 < row.speedup < inf else None


def is_speedup_disturbed(row: Row) -> bool:
    """Whether there is a speedup of which one side is the scheduler's."""
    return row.speedup is not None and (row.is_disturbed or row.is_speedup_disturbed)


def disturbed_rows(rows: Iterable[Row]) -> list[Row]:
    """Rows that have a time or a speedup that is not to be relied on."""
    return [row for row in rows if row.is_disturbed or row.is_speedup_disturbed]


def average_speedup(rows: Iterable[Row]) -> Average:
    """Over rows of one implementation; what was not available does not count at all."""
    tried = [row for row in rows if row.status is not Status.UNAVAILABLE]
    found = [speedup for speedup in map(speedup_of, tried) if speedup is not None]
    num_disturbed = sum(map(is_speedup_disturbed, tried))
    return Average(geomean(found), len(found), len(tried), num_disturbed)


def average_speedups(rows: Iterable[Row]) -> dict[str, Average]:
    """By implementation, ours first."""
    rows = list(rows)
    names = implementation_names(rows)
    return {name: average_speedup(r for r in rows if r.implementation == name) for name in names}


def implementation_names(rows: Iterable[Row]) -> list[str]:
    """Ours first, otherwise as they come."""
    rows = list(rows)
    ours = [row.implementation for row in rows if row.owner is Owner.OURS]
    return list(dict.fromkeys([*ours, *(row.implementation for row in rows)]))


def by_operator(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Rows of each operator, as they come."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.operator, []).append(row)
    return found


def failures(rows: Iterable[Row]) -> list[Row]:
    """Rows that somebody is to blame for, ours first."""
    order = {"ours failed": 0, "harness failed": 1}
    return sorted((row for row in rows if row.blame), key=lambda row: order.get(row.blame, 2))
