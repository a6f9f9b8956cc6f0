"""Rows as tables: which rows are shown, their columns by metric, and CSV and JSON for programs."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from fnmatch import fnmatchcase
from typing import Any

from tilesmith.bench.implementations import HELION, Implementation, ImplementationKind
from tilesmith.bench.plan import Options, PlanError, suggest
from tilesmith.bench.row import Owner, Row, average_speedups, by_operator, is_speedup_disturbed
from tilesmith.diagnostics.wording import number_text, percent_text
from tilesmith.lab.reports import json_line
from tilesmith.lab.workload.argument_text import find_dtype

DISTURBED = "disturbed"
"""Stands where a noise would stand."""
CSV_FIELDS = tuple(item.name for item in fields(Row) if item.name not in ("environment", "code"))


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


def _speedup_cell(row: Row) -> str:
    if row.speedup is None:
        return ""
    noise = _optional(speedup_noise_of(row), plus_minus)
    behind = DISTURBED if is_speedup_disturbed(row) else noise
    return f"{speedup_text(row.speedup)} {behind}".rstrip()


def _noise_cell(row: Row) -> str:
    return DISTURBED if row.is_disturbed else _optional(noise_of(row), plus_minus)


def plus_minus(share: float) -> str:
    """A noise as text: how far off a time or speedup may be."""
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
        Column("noise", _noise_cell),
    ),
    "speedup": (Column("speedup", _speedup_cell),),
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


def csv_text(rows: Sequence[Row]) -> str:
    """A table of all fields but the environment and code, with a header."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*CSV_FIELDS, "blame"])
    for row in rows:
        writer.writerow([*(_plain(getattr(row, name)) for name in CSV_FIELDS), row.blame])
    return text.getvalue()


def json_text(rows: Sequence[Row], run: Mapping[str, Any]) -> str:
    """One document: how it was run, geometric means, rows."""
    document = {
        "run": run,
        "speedups": _averages(rows),
        "operators": {name: _averages(found) for name, found in by_operator(rows).items()},
        "rows": [{**json.loads(row.to_json()), "blame": row.blame} for row in rows],
    }
    return json_line(document) + "\n"


def _averages(rows: Sequence[Row]) -> dict[str, dict[str, float | int | None]]:
    return {
        name: {
            "geomean": average.value,
            "count": average.count,
            "total": average.total,
            "disturbed": average.num_disturbed,
        }
        for name, average in average_speedups(rows).items()
    }


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else "" if value is None else value


def choose_rows(rows: Sequence[Row], options: Options) -> list[Row]:
    """Those that are meant; PlanError for a name that no row has, and if none is left.

    Which shard of its inputs an operator's row is in cannot be told from a file.
    """
    if options.shard is not None:
        raise PlanError(
            "--input-shard does not go with --from: a file does not say how many inputs there "
            "are; choose with --input-id"
        )
    dtype = str(find_dtype(options.dtype) or "").removeprefix("torch.")
    chosen = _named(rows, "--kernel", options.kernels, "operator")
    chosen = _named(chosen, "--only", options.only, "implementation")
    chosen = _named(chosen, "--dtype", [dtype] if dtype else [], "dtype")
    chosen = _named(chosen, "--device", [options.device] if options.device else [], "device")
    there = sorted({row.input_id for row in chosen})
    wrong = [number for number in options.input_ids if number not in there]
    if wrong:
        known = ", ".join(map(str, there))
        raise PlanError(f"--input-id {wrong[0]}: no row of the file; there are inputs {known}")
    return [row for mine in by_operator(chosen).values() for row in _of_inputs(mine, options)]


def _named(rows: Sequence[Row], option: str, names: Sequence[str], field: str) -> list[Row]:
    """Rows that one of the names means; all if there are no names."""
    for name in names:
        if not any(_is_meant(row, field, name) for row in rows):
            known = list(dict.fromkeys(getattr(row, field) for row in rows))
            raise PlanError(f"{option} {name}: no row of the file; {suggest(name, known)}")
    return [row for row in rows if not names or any(_is_meant(row, field, name) for name in names)]


def _is_meant(row: Row, field: str, pattern: str) -> bool:
    """As in a plan; what kind of implementation it is shows in its name."""
    name, kinds = getattr(row, field), ImplementationKind
    if field != "implementation":
        return fnmatchcase(name, pattern)
    kind = kinds.HELION if name.startswith(HELION) else kinds.FUNCTION
    if row.owner is Owner.OURS:
        kind = kinds.TUNED if name.endswith("_tuned") else kinds.DEFAULT
    return Implementation(name, kind).answers_to(pattern)


def _of_inputs(rows: Sequence[Row], options: Options) -> list[Row]:
    """Rows of one operator with the inputs that were asked for."""
    there = sorted({row.input_id for row in rows})
    ids = options.input_ids
    if len(set(ids)) == 1 and options.num_inputs is not None:
        there = [number for number in there if number >= ids[0]]
    elif ids:
        there = [number for number in dict.fromkeys(ids) if number in there]
    kept = there[: options.num_inputs]
    return [row for row in rows if row.input_id in kept]


def paste_text(config: str) -> str:
    """A config under the name that it has for users.

    Example:
        >>> paste_text("Config(num_warps=4)")
        'tilesmith.Config(num_warps=4)'
    """
    return re.sub(r"(?<![.\w])Config\(", "tilesmith.Config(", config)
