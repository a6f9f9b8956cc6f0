"""Injects every fault and prints what became of it; exits with 1 if a promise was broken.

``python -m tools.faults [--only GROUP ...] [--out build/faults] [--seconds 1500]``. The table is
written as ``faults.md`` and ``faults.json``. What is real and what is simulated stands in it.
"""

from __future__ import annotations

import argparse
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path

import torch

from tests.tune.kernels import make_add
from tools.faults import rows as table
from tools.faults.groups import GROUPS
from tools.faults.rows import Row
from tools.faults.search import X, Y


def commit() -> str:
    """What is checked out, as git names it."""
    command = ["git", "describe", "--always", "--dirty"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


def run(names: Sequence[str], folder: Path, seconds: float) -> Iterator[Row]:
    """The rows of groups, as they come; groups that time does not allow are rows too."""
    end = time.monotonic() + seconds
    for name in names:
        place = folder / name
        place.mkdir()
        for row in table.timed(GROUPS[name](place)):
            yield row
            if time.monotonic() > end:
                yield Row(name, "the rest of this group", "", ("there was no time left",), 0)
                return


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description="inject faults and see what becomes of them")
    parser.add_argument("--only", nargs="+", choices=list(GROUPS), default=list(GROUPS))
    parser.add_argument("--out", type=Path, default=Path("build/faults"))
    parser.add_argument("--seconds", type=float, default=1500.0)
    options = parser.parse_args()
    logging.getLogger("tilesmith").setLevel(logging.ERROR)  # thousands of damaged files
    torch.set_num_threads(1)  # scenarios are forks of this process
    found: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="faults-") as name:
        os.environ["TILESMITH_CACHE_DIR"] = str(Path(name) / "warm")
        make_add()(X, Y)  # what every process would load once more is loaded before they fork
        for row in run(options.only, Path(name), options.seconds):
            found.append(row)
            mark = "ok " if row.is_good else "BAD"
            text = row.outcome if row.is_good else "; ".join(row.problems)
            print(f"{mark} {row.seconds:6.1f} s  {row.group}: {row.fault}: {text}", flush=True)
    now = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    bad = sum(not row.is_good for row in found)
    runs = sum(row.runs for row in found)
    about = f"{len(found)} faults, {runs} runs, {bad} not as promised; commit {commit()}, {now}."
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "faults.md").write_text(table.as_markdown(found, about))
    facts = {"commit": commit(), "date": now}
    (options.out / "faults.json").write_text(table.as_json(found, facts))
    print(f"{about} {options.out}/faults.md")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
