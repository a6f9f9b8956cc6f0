"""CSV and JSON: everything is there, unknown numbers are empty and never zero."""

from __future__ import annotations

import csv
import io
import json

import pytest

from tests.bench.made_up_rows import disturbed_row, fail, make_row, make_rows
from tilesmith.bench.row import Cause, Row, average_speedups
from tilesmith.bench.tables import csv_text, json_text


def read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_every_row_is_a_line():
    rows = make_rows()
    found = read(csv_text(rows))
    assert len(found) == len(rows)
    assert [line["implementation"] for line in found] == [row.implementation for row in rows]
    assert float(found[0]["latency_ms"]) == rows[0].latency_ms
    assert found[0]["status"] == "ok"


def test_a_failure_has_a_reason_and_no_numbers():
    reason = 'it said "no",\nthen died'
    (line,) = read(csv_text([fail(make_row(), Cause.CRASH, reason)]))
    assert (line["blame"], line["cause"], line["reason"]) == ("ours failed", "crash", reason)
    assert (line["latency_ms"], line["speedup"], line["tflops"]) == ("", "", "")


def test_json_has_rows_and_averages():
    rows = make_rows()
    found = json.loads(json_text(rows, {"started": "now"}))
    assert found["run"] == {"started": "now"}
    expected = average_speedups(rows)["tilesmith"]
    assert found["speedups"]["tilesmith"]["geomean"] == pytest.approx(expected.value)
    assert found["speedups"]["tilesmith"]["count"] == expected.count
    assert set(found["operators"]) == {"gemm", "rms_norm"}
    line = {name: value for name, value in found["rows"][0].items() if name != "blame"}
    assert Row.from_json(json.dumps(line)) == rows[0]


def test_noise_and_disturbances_are_exported():
    rows = [make_row(), disturbed_row()]
    plain, busy = read(csv_text(rows))
    assert (plain["baseline_spread"], plain["speedup_spread"]) == ("0.008", "0.013")
    assert (plain["is_speedup_disturbed"], busy["is_speedup_disturbed"]) == ("False", "True")
    assert (plain["disturbed_samples"], busy["disturbed_samples"]) == ("", "15")
    found = json.loads(json_text(rows, {}))
    expected = {"geomean": pytest.approx(1.2), "count": 1, "total": 2, "disturbed": 1}
    assert found["speedups"]["tilesmith"] == expected
    assert [row["is_speedup_disturbed"] for row in found["rows"]] == [False, True]


def test_numbers_that_are_none_are_no_invalid_json():
    text = json_text([make_row(error=float("nan"))], {})
    assert "NaN" not in text
    assert json.loads(text)["rows"][0]["error"] is None


def test_no_rows_are_a_table_with_a_header_only():
    assert csv_text([]).startswith("operator,input_id,")
    assert read(csv_text([])) == []
