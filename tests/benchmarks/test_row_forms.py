"""The benchmark of products with reduced rows: what it times is right, and the table says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from benchmarks import row_forms
from benchmarks.suites.founding import operators

CPU = torch.device("cpu")


def measurement(name: str = "matmul_logsumexp") -> row_forms.Measurement:
    (operator,) = [one for one in operators() if one.name == name]
    return row_forms.Measurement(operator, operator.cpu_inputs[0], CPU)


def test_every_cell_becomes_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rows.jsonl"
    only = ["--only", "33x64x128", "--no-compile", "--repeats", "2", "--forms"]
    row_forms.main([*only, "--json", str(path)])
    environment, *lines = map(json.loads, path.read_text().splitlines())
    assert environment["device"] == "cpu"
    assert [line["name"].partition(" ")[0] for line in lines] == [
        "matmul_layernorm", "matmul_rms_norm", "matmul_softmax", "matmul_l2_normalize",
        "matmul_logsumexp",
    ]  # fmt: skip
    assert all(set(line["ms"]) == {"default", "eager"} for line in lines)
    assert not any(line["problems"] for line in lines)
    assert "times as fast as eager (5 cells)" in capsys.readouterr().out


def test_wrong_and_unsteady_results_are_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    good = measurement()._ours
    calls = iter(range(9))

    def unsteady(self: row_forms.Measurement, config: object) -> row_forms.Work:
        # Within the budget, and not the same twice.
        return lambda: good(config)() * (1 + next(calls) * 2.0**-23)

    for ours, problem in [
        (lambda self, config: lambda: good(config)() + 1e-3, "beyond the budget"),
        (unsteady, "differ"),
    ]:
        monkeypatch.setattr(row_forms.Measurement, "_ours", ours)
        cell = measurement().run(2, all_forms=False, with_compile=False)
        assert set(cell.ms) == {"eager"}
        assert problem in cell.problems["default"]


@pytest.mark.parametrize("count", [1, 511, 513, 131072])
def test_the_last_rows_are_checked(count: int) -> None:
    rows = row_forms.some_rows(count, CPU)
    assert int(rows[0]) == 0
    assert int(rows[-1]) == count - 1
    assert len(rows) == min(count, len(rows)) <= 2 * row_forms.NUM_CHECKED
    assert torch.equal(rows, rows.unique())
