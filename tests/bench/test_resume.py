"""A run whose supervisor is killed leaves nothing running, and goes on where it was."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.bench.broken_implementations import PERMISSION
from tests.bench.test_broken_implementations import Told
from tests.bench.tiny_suite import NAME, suite
from tilesmith.bench.journal import read_journal
from tilesmith.bench.plan import Options, make_plan
from tilesmith.bench.row import Status
from tilesmith.bench.run import run_plan

ROOT = Path(__file__).parents[2]
WAITING = "broken_implementations.waits_for_permission"
PATIENCE_S = 60.0
SUPERVISOR = """
import pickle, sys
from tests.bench.tiny_suite import suite
from tilesmith.bench.plan import make_plan
from tilesmith.bench.run import run_plan
options = pickle.loads(bytes.fromhex(sys.argv[1]))
run_plan(make_plan(suite(), options), options)
"""


def await_that(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def with_marker(marker: Path) -> list[int]:
    """Processes that were started under the marker's variable."""
    found: list[int] = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            text = entry.read_bytes()
        except OSError:
            continue
        if f"{PERMISSION}={marker}\0".encode() in text:
            found.append(int(entry.parent.name))
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_a_killed_run_goes_on_with_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, marker = tmp_path / "rows.jsonl", tmp_path / "may_go_on"
    monkeypatch.setenv(PERMISSION, str(marker))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    options = Options(
        suite=NAME,
        kernels=("double",),
        num_inputs=2,
        only=("eager", "by_hand", WAITING),
        impls=("tests.bench.broken_implementations:waits_for_permission",),
        metrics=("latency",),
        device="cpu",
        timeout_s=PATIENCE_S,
        path=path,
    )
    code = [sys.executable, "-c", SUPERVISOR, pickle.dumps(options).hex()]
    paths = os.pathsep.join(filter(None, sys.path))
    variables = {**os.environ, "PYTHONPATH": paths, "TMPDIR": str(tmp_path)}
    run = subprocess.Popen(code, env=variables, cwd=ROOT)
    try:
        await_that(lambda: path.exists() and path.read_bytes().count(b"\n") == 3)
        before = read_journal(path).rows
        assert len(with_marker(marker)) >= 2
    finally:
        run.kill()
        run.wait()
    await_that(lambda: not with_marker(marker))
    with path.open("ab") as file:
        file.write(b'{"operator": "double", "input_id"')
    marker.touch()
    assert list(tmp_path.glob("tilesmith*"))
    told = Told()
    again = replace(options, resume=True)
    rows = run_plan(make_plan(suite(), again), again, told)
    assert [row.implementation for row in before] == ["eager", "by_hand"]
    assert rows[:2] == before
    assert [(job.input_id, job.implementation.name) for job in told.jobs] == [
        (0, WAITING),
        (1, "eager"),
        (1, "by_hand"),
        (1, WAITING),
    ]
    assert {row.status for row in rows} == {Status.OK}
    journal = read_journal(path)
    assert (journal.rows, journal.num_unreadable) == (rows, 0)
    left = sorted(entry.name for entry in tmp_path.iterdir())
    assert left == ["may_go_on", "rows.jsonl"]
