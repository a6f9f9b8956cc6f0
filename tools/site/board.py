"""Rows of scoreboards for the gallery: ``python -m tools.site.board BOARD.jsonl ...``.

Writes gpu_times.json. A board of some operators leaves the rows of others as they are; of the same
input the later row counts. Only rows where ours and a rival have a time are kept.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.suites import suite
from tilesmith.bench.journal import read_journal
from tilesmith.bench.row import Owner, Row
from tilesmith.bench.scoreboard.board import TUNED, Board, make_board

OUTPUT = Path(__file__).parent / "gpu_times.json"


def rows_of(board: Board) -> Iterator[dict[str, Any]]:
    """A row for each of our kernels, with its default config, and input with a rival's time."""
    known = board.environment
    run = {"date": known.get("started", "")[:10], "torch": known.get("torch", "")}
    for line in board.lines:
        rival = line.rival
        if rival is None or line.is_disturbed:
            continue
        for row in line.rows:
            if row.owner is Owner.OURS and row.speedup and not row.implementation.endswith(TUNED):
                yield _row(row, rival) | run


def _row(ours: Row, rival: Row) -> dict[str, Any]:
    return {
        "operator": ours.operator,
        "kernel": ours.implementation.removeprefix("tilesmith").lstrip("_"),
        "input": f"{ours.input_label} {ours.dtype}",
        "number": ours.input_id,
        "ours_ms": ours.latency_ms,
        "rival": rival.implementation,
        "rival_ms": rival.latency_ms,
        "ratio": round((ours.speedup or 0.0) / (rival.speedup or 1.0), 3),
    }


def merged(known: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows by operator, kernel and input, the new ones in place of the old."""
    found = {(row["operator"], row["kernel"], row["input"]): row for row in [*known, *new]}
    return sorted(found.values(), key=lambda row: (row["operator"], row["number"], row["kernel"]))


@cache
def gpu_rows() -> dict[str, Any]:
    """What is in the file: the device, and its rows."""
    return json.loads(OUTPUT.read_text(encoding="utf-8"))


def main() -> None:
    """Take the rows of boards over."""
    parser = argparse.ArgumentParser(prog="python -m tools.site.board", description=__doc__)
    parser.add_argument("boards", nargs="+", type=Path, help="files of rows, the oldest first")
    parser.add_argument("--new", action="store_true", help="leave out what is there")
    options = parser.parse_args()
    is_kept = OUTPUT.exists() and not options.new
    known: dict[str, Any] = json.loads(OUTPUT.read_text()) if is_kept else {"rows": []}
    families = {one.name: one.family for one in suite().operators}
    for path in options.boards:
        board = make_board(read_journal(path), families)
        device = board.environment.get("device", "")
        if known.setdefault("device", device) != device:
            raise SystemExit(f"{path} is of {device}, the rows are of {known['device']}: --new")
        known["rows"] = merged(known["rows"], list(rows_of(board)))
    OUTPUT.write_text(_text(known), encoding="utf-8")
    print(f"{len(known['rows'])} rows in {OUTPUT}")


def _text(known: dict[str, Any]) -> str:
    """A line for each row."""
    rows = ",\n".join(f"  {json.dumps(row)}" for row in known["rows"])
    return f'{{\n "device": {json.dumps(known["device"])},\n "rows": [\n{rows}\n ]\n}}\n'


if __name__ == "__main__":
    main()
