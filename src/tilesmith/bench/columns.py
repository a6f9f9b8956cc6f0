"""The columns of tables of rows, by metric: the same in the terminal and on the page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tilesmith.bench.averages import is_speedup_disturbed
from tilesmith.bench.row import Row
from tilesmith.diagnostics.wording import number_text, percent_text

DISTURBED = "disturbed"
"""Stands where a noise would stand."""


@dataclass(frozen=True)
class Column:
    """A heading, and the text of a row under it; empty where the row has no value."""

    heading: str
    text: Callable[[Row], str]


def speedup_text(speedup: float) -> str:
    """How often as fast as the baseline.

    Example:
        >>> speedup_text(1.234), speedup_text(0.0421), speedup_text(12.34)
        ('1.23x', '0.042x', '12.3x')
    """
    digits = 3 if speedup < 0.1 else 2 if speedup < 10 else 1
    return f"{speedup:.{digits}f}x"


def _optional(value: float | None, text: Callable[[float], str]) -> str:
    return "" if value is None else text(value)


def _noise_text(row: Row) -> str:
    return DISTURBED if row.is_disturbed else _optional(noise_of(row), plus_minus)


def _speedup_text(row: Row) -> str:
    if row.speedup is None:
        return ""
    noise = _optional(speedup_noise_of(row), plus_minus)
    return f"{speedup_text(row.speedup)} {DISTURBED if is_speedup_disturbed(row) else noise}"


def plus_minus(share: float) -> str:
    """A noise."""
    return f"±{percent_text(share)}"


def speedup_noise_of(row: Row) -> float | None:
    """How far off a row's speedup may be, as a share; None where nothing was compared."""
    if row.speedup_spread is None:
        return None
    return max(row.speedup_spread, row.noise_floor or 0.0)


def noise_of(row: Row) -> float | None:
    """How far off a row's time may be, as a share: its spread or its noise floor."""
    known = [value for value in (row.spread, row.noise_floor) if value is not None]
    return max(known, default=None)


COLUMNS: Mapping[str, Sequence[Column]] = {
    "latency": (
        Column("time, ms", lambda row: _optional(row.latency_ms, number_text)),
        Column("noise", _noise_text),
    ),
    "speedup": (Column("speedup", lambda row: _speedup_text(row).rstrip()),),
    "tflops": (Column("TFLOP/s", lambda row: _optional(row.tflops, number_text)),),
    "gbps": (Column("GB/s", lambda row: _optional(row.gbps, number_text)),),
    "accuracy": (
        Column("error", lambda row: _optional(row.error, "{:.1e}".format)),
        Column("of allowed", lambda row: _optional(row.error_share, percent_text)),
    ),
    "compile_time": (Column("compile, s", lambda row: _optional(row.compile_s, number_text)),),
    "tune_time": (Column("tune, s", lambda row: _optional(row.tune_s, number_text)),),
}


def columns_for(rows: Iterable[Row], metrics: Iterable[str] = tuple(COLUMNS)) -> list[Column]:
    """The columns of some metrics in which at least one row has a value."""
    rows = list(rows)
    wanted = [column for metric in metrics for column in COLUMNS[metric]]
    return [column for column in wanted if any(column.text(row) for row in rows)]
