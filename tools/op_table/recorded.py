"""The results as they are kept: for each function and backend one mark per element type."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import torch

from tools.op_table.probe import Finding, Verdict

RESULTS = Path(__file__).parent / "results.json"
DTYPES = (
    torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int32, torch.int64,
    torch.int8, torch.uint8, torch.bool,
)  # fmt: skip
NOTHING = "-"
PARTIAL = "m"
_MOST_REASONS = 4


def dtype_name(dtype: torch.dtype) -> str:
    """``float32`` for ``torch.float32``."""
    return str(dtype).removeprefix("torch.")


def overall_mark(findings: Iterable[Finding]) -> str:
    """One mark for all samples of an element type: the worst of them, or what is missing."""
    verdicts = {finding.verdict for finding in findings} - {Verdict.NOT_APPLICABLE}
    for worst in (Verdict.CRASH, Verdict.WRONG):
        if worst in verdicts:
            return worst.value
    if len(verdicts) > 1:
        return PARTIAL
    return next(iter(verdicts)).value if verdicts else NOTHING


@dataclass
class Results:
    """Marks by function and backend (a string with one place for each of ``DTYPES``).

    Attributes:
        marks: function -> backend -> marks.
        reasons: function -> why calls fail, each reason once.
        not_provided: functions that torch describes and the table lacks.
        torch_version: the torch whose samples they are.
    """

    marks: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    reasons: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    not_provided: list[str] = field(default_factory=list[str])
    torch_version: str = ""

    def backends(self) -> list[str]:
        """All backends that any function has marks for."""
        return sorted({backend for row in self.marks.values() for backend in row})

    def update(self, newer: Results) -> None:
        """Take over the functions and backends that were run again."""
        for name, row in newer.marks.items():
            self.marks.setdefault(name, {}).update(row)
            kept = [r for r in self.reasons.get(name, []) if r.split(" ")[0] not in row]
            self.reasons[name] = sorted({*kept, *newer.reasons.get(name, [])})
        self.reasons = {name: found for name, found in self.reasons.items() if found}

    def keep_only(self, functions: Iterable[str]) -> None:
        """Forget functions that the table no longer has."""
        known = set(functions)
        self.marks = {name: row for name, row in self.marks.items() if name in known}
        self.reasons = {name: found for name, found in self.reasons.items() if name in known}


class Collector:
    """Gathers findings and makes results of them."""

    def __init__(self) -> None:
        self._findings: dict[tuple[str, str, torch.dtype], list[Finding]] = defaultdict(list)

    def add(self, name: str, backend: str, dtype: torch.dtype, findings: list[Finding]) -> None:
        """Findings of one element type; several spellings of a function share its row."""
        self._findings[name, backend, dtype] += findings

    def results(self) -> Results:
        """The marks of all functions seen."""
        results = Results()
        for name, backend in sorted({(name, backend) for name, backend, _ in self._findings}):
            found = {dtype: self._findings.get((name, backend, dtype), []) for dtype in DTYPES}
            marks = "".join(overall_mark(found[dtype]) for dtype in DTYPES)
            results.marks.setdefault(name, {})[backend] = marks
            results.reasons.setdefault(name, []).extend(_reasons(backend, found))
        results.reasons = {name: why for name, why in results.reasons.items() if why}
        return results


def _reasons(backend: str, found: dict[torch.dtype, list[Finding]]) -> list[str]:
    """Each reason once (a few of them), with the element types it was met with."""
    dtypes: dict[str, list[str]] = {}
    for dtype, findings in found.items():
        for finding in findings:
            if finding.verdict not in (Verdict.PASS, Verdict.NOT_APPLICABLE):
                names = dtypes.setdefault(f"{finding.verdict.name.lower()}: {finding.reason}", [])
                if dtype_name(dtype) not in names:
                    names.append(dtype_name(dtype))
    reasons = [f"{backend} ({', '.join(names)}) {reason}" for reason, names in dtypes.items()]
    return reasons[:_MOST_REASONS]


def load(path: Path = RESULTS) -> Results:
    """The recorded results; empty where there are none yet."""
    if not path.exists():
        return Results()
    content = json.loads(path.read_text())
    return Results(content["marks"], content["reasons"], content["not_provided"], content["torch"])


def save(results: Results, path: Path = RESULTS) -> None:
    """Write results so that each function is one line."""
    content = {
        "torch": results.torch_version,
        "dtypes": [dtype_name(dtype) for dtype in DTYPES],
        "marks": dict(sorted(results.marks.items())),
        "reasons": dict(sorted(results.reasons.items())),
        "not_provided": sorted(results.not_provided),
    }
    sections = [f" {json.dumps(key)}: {_block(value)}" for key, value in content.items()]
    path.write_text("{\n" + ",\n".join(sections) + "\n}\n")


def _block(value: object) -> str:
    if not isinstance(value, dict) or not value:
        return json.dumps(value)
    lines = [f"  {json.dumps(key)}: {json.dumps(item)}" for key, item in value.items()]
    return "{\n" + ",\n".join(lines) + "\n }"
