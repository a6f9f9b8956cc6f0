"""A diagnosis as text for people and as values for JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from textwrap import wrap
from typing import Any

import torch
from typing_extensions import override

from tilesmith.numerics.doctor.errors import histogram_lines
from tilesmith.numerics.doctor.findings import (
    AS_WRITTEN,
    Agreement,
    ErrorStatistics,
    Examination,
    Finding,
    Scope,
    Sensitivity,
    Verdict,
)


@dataclass(frozen=True)
class Diagnosis:
    """What was measured, and what it means; ``str`` is the report."""

    examination: Examination
    verdict: Verdict
    findings: tuple[Finding, ...] = ()
    sensitivities: tuple[Sensitivity, ...] = ()
    """Roundings of intermediates and how much of the error they make."""

    @property
    def statistics(self) -> tuple[ErrorStatistics, ...]:
        """Errors of every output of every implementation."""
        return self.examination.statistics

    @property
    def agreements(self) -> tuple[Agreement, ...]:
        """What agrees bit for bit."""
        return self.examination.agreements

    def to_json(self) -> dict[str, Any]:
        """All of it as plain values."""
        subject = self.examination.subject
        parts = ("findings", "statistics", "agreements", "sensitivities")
        return {
            "kernel": subject.name,
            "reference": str(subject.reference),
            "verdict": _plain(asdict(self.verdict)),
            **{part: [_plain(asdict(item)) for item in getattr(self, part)] for part in parts},
            "failures": dict(self.examination.failures),
        }

    @override
    def __str__(self) -> str:
        return "\n".join(_lines(self))


def _lines(diagnosis: Diagnosis) -> Iterator[str]:
    examination = diagnosis.examination
    subject = examination.subject
    yield f"{subject.name}: {diagnosis.verdict.kind.value}"
    yield from _wrapped(diagnosis.verdict.text, "  ")
    if diagnosis.verdict.tolerance:
        yield f"  justified tolerance: {diagnosis.verdict.tolerance}"
    for name, why in examination.failures.items():
        yield f"  {name} gave no result: {why}"
    yield from _finding_lines(diagnosis)
    yield f"errors against the {subject.reference}"
    if subject.reference.reason:
        yield f"  ({subject.reference.reason})"
    yield from _error_lines(examination)
    yield "bitwise agreement"
    yield from map(_agreement_line, examination.agreements)
    yield from _sensitivity_lines(diagnosis.sensitivities)


def _finding_lines(diagnosis: Diagnosis) -> Iterator[str]:
    if diagnosis.findings:
        yield "findings"
    for finding in diagnosis.findings:
        is_said = finding.text == diagnosis.verdict.text
        if is_said and not finding.evidence:
            continue
        yield from _wrapped("the verdict rests on" if is_said else finding.text, "  ", "- ")
        for evidence in finding.evidence:
            yield from _wrapped(evidence, "      ")


def _error_lines(examination: Examination) -> Iterator[str]:
    outputs = dict.fromkeys(s.output for s in examination.statistics)
    for output in outputs:
        rows = [s for s in examination.statistics if s.output == output]
        first = rows[0]
        dtype = str(first.dtype).removeprefix("torch.")
        yield f"  {output}: {dtype}, {first.num_elements} elements compared"
        yield from _table(rows)
        yield from (f"    {line}" for line in histogram_lines(rows))
        yield from _worst_lines(rows)


def _table(rows: list[ErrorStatistics]) -> Iterator[str]:
    heads = ("max ulp", "p99 ulp", "median ulp", "max abs", "rel. norm", "bias ulp")
    width = max(len(row.implementation) for row in rows)
    yield f"    {'':<{width}}  {'  '.join(f'{head:>10}' for head in heads)}"
    for row in rows:
        ulps = (row.max_ulp, row.p99_ulp, row.median_ulp)
        values = (*ulps, row.max_abs, row.relative_norm, row.bias_ulp)
        cells = "  ".join(f"{_number(value):>10}" for value in values)
        mark = "" if row.is_right else "  WRONG"
        yield f"    {row.implementation:<{width}}  {cells}{mark}"


def _worst_lines(rows: list[ErrorStatistics]) -> Iterator[str]:
    """The worst elements of all implementations, each once."""
    yield from (f"    {row.implementation}: {row.fault}" for row in rows if row.fault)
    own = [row for row in rows if row.implementation != AS_WRITTEN]
    elements = {element.index: element for row in own for element in row.worst}
    if elements:
        yield "    worst elements"
    for index, element in elements.items():
        place = f"{rows[0].output}[{', '.join(map(str, index))}]"
        yield f"      {place} is exactly {element.expected:.9g}"
        for row in own:
            yield from (
                f"        {row.implementation}: {found.got:.9g}, {_number(found.error_ulp)} ulp off"
                for found in row.worst
                if found.index == index
            )
        yield from (f"        from {used.text}: {used.values}" for used in element.inputs)


def _agreement_line(agreement: Agreement) -> str:
    head = f"  {agreement.implementation} over {agreement.over.value}: "
    if agreement.skipped:
        return f"{head}not compared, {agreement.skipped}"
    if agreement.num_runs < 2:
        return f"{head}not compared, there was one run"
    listed = f" ({', '.join(agreement.labels)})" if agreement.labels else ""
    runs = f"{agreement.num_runs}{' runs' if agreement.over is Scope.REPEATS else listed}"
    if agreement.is_same:
        return f"{head}all {runs} agree"
    return (
        f"{head}{agreement.num_different} of {agreement.num_elements} elements differ among "
        f"{runs}, by up to {_number(agreement.max_ulp)} ulp, such as {agreement.first}"
    )


def _sensitivity_lines(found: tuple[Sensitivity, ...]) -> Iterator[str]:
    if found:
        yield "roundings of intermediates, and the share of the squared error that they make"
    for item in found:
        name = f"{item.variable} " if item.variable else ""
        where = f" in {item.output}" if item.output else ""
        yield f"  {item.share:6.1%}{where}  {name}to {item.dtype}, {item.location}: {item.line}"


def _wrapped(text: str, indent: str, mark: str = "") -> list[str]:
    later = indent + " " * len(mark)
    # Words as long as a path stay whole.
    return wrap(
        " ".join(text.split()),
        96,
        initial_indent=indent + mark,
        subsequent_indent=later,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _number(value: float) -> str:
    if value == 0.0 or not math.isfinite(value):
        return f"{value:g}"
    if 1e3 <= abs(value) < 1e7:
        return f"{value:.0f}"
    return f"{value:.3g}" if abs(value) >= 1e-3 else f"{value:.1e}"


def _plain(value: Any) -> Any:
    """Values that JSON can hold; infinities and NaN as text."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return str(value) if isinstance(value, torch.dtype) else value
