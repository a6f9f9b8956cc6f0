"""Rows of scoreboards become those of the gallery; a later board replaces what it has, too."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.bench.made_up_rows import make_row
from tilesmith.bench.row import Owner, Row
from tools.site import board, gallery
from tools.site.cases import example_files, module_of

RUN = {"run": {"started": "2026-11-18T12:33:06+00:00", "software": {"torch": "2.11"}}}
Convert = Callable[..., list[dict[str, Any]]]


def row(implementation: str, speedup: float, operator: str = "softmax", gpu: str = "GPU") -> Row:
    is_ours = implementation.startswith("tilesmith")
    return make_row(
        operator=operator,
        implementation=implementation,
        owner=Owner.OURS if is_ours else Owner.THEIRS,
        speedup=speedup,
        latency_ms=1 / speedup,
        environment={"device": gpu},
    )


@pytest.fixture
def convert(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Convert:
    """Hands a board to the tool; what is in the file then."""
    monkeypatch.setattr(board, "OUTPUT", tmp_path / "times.json")

    def run(*rows: Row) -> list[dict[str, Any]]:
        place = tmp_path / "board.jsonl"
        place.write_text("\n".join([json.dumps(RUN), *(one.to_json() for one in rows)]) + "\n")
        monkeypatch.setattr(sys, "argv", ["board", str(place)])
        board.main()
        return json.loads(board.OUTPUT.read_text())["rows"]

    return run


def test_each_of_our_kernels_stands_against_the_fastest_other(convert: Convert) -> None:
    ours = row("tilesmith_whole", 2.0), row("tilesmith_parts", 3.0), row("tilesmith_tuned", 9.0)
    found = convert(*ours, row("eager", 1.0), row("triton", 4.0))
    assert [(one["kernel"], one["rival"], one["ratio"]) for one in found] == [
        ("parts", "triton", 0.75),
        ("whole", "triton", 0.5),
    ]
    assert {(one["date"], one["torch"]) for one in found} == {("2026-11-18", "2.11")}


def test_without_a_rival_there_is_no_row(convert: Convert) -> None:
    assert convert(row("tilesmith", 2.0)) == []


def test_a_later_board_replaces_what_it_measured_and_leaves_the_rest(convert: Convert) -> None:
    convert(row("tilesmith", 2.0), row("eager", 1.0))
    found = convert(row("tilesmith", 5.0, "add"), row("eager", 1.0, "add"))
    assert {one["operator"]: one["ratio"] for one in found} == {"softmax": 2.0, "add": 5.0}
    found = convert(row("tilesmith", 3.0), row("eager", 1.0))
    assert {one["operator"]: one["ratio"] for one in found} == {"softmax": 3.0, "add": 5.0}


def test_times_of_two_devices_are_not_mixed(convert: Convert) -> None:
    convert(row("tilesmith", 2.0), row("eager", 1.0))
    with pytest.raises(SystemExit, match="is of other, the rows are of GPU"):
        convert(row("tilesmith", 2.0, gpu="other"), row("eager", 1.0, gpu="other"))


def test_every_row_of_the_file_is_on_a_page() -> None:
    shown = [one for path in example_files() for one in gallery.board_rows(module_of(path))]
    rows = board.gpu_rows()["rows"]
    assert rows
    # These products have no example of their own.
    without = {one["operator"] for one in rows if one not in shown}
    assert without <= {"addmm", "addmm-bwd"}
