"""Rows for other programs: CSV with one line for each row, JSON with the averages as well."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from enum import Enum
from typing import Any

from tilesmith.bench.averages import Average, average_speedups, by_operator
from tilesmith.bench.row import Row
from tilesmith.lab.report.line_file import json_line

CSV_FIELDS = tuple(item.name for item in fields(Row) if item.name != "environment")


def csv_text(rows: Sequence[Row]) -> str:
    """A table of all fields but the environment, with a header."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*CSV_FIELDS, "blame"])
    for row in rows:
        writer.writerow([*(_plain(getattr(row, name)) for name in CSV_FIELDS), row.blame])
    return text.getvalue()


def json_text(rows: Sequence[Row], run: Mapping[str, Any]) -> str:
    """One document: how it was run, geometric means, rows."""
    operators = by_operator(rows)
    document = {
        "run": run,
        "speedups": _averages(average_speedups(rows)),
        "operators": {
            name: _averages(average_speedups(found)) for name, found in operators.items()
        },
        "rows": [{**json.loads(row.to_json()), "blame": row.blame} for row in rows],
    }
    return json_line(document) + "\n"


def _averages(averages: Mapping[str, Average]) -> dict[str, dict[str, float | int | None]]:
    return {
        name: {
            "geomean": average.value,
            "count": average.count,
            "total": average.total,
            "disturbed": average.num_disturbed,
        }
        for name, average in averages.items()
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    return "" if value is None else value
