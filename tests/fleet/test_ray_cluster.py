"""Searches by the actors and tasks of a real Ray cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tilesmith.runtime.device import describe_device, target_of

pytest.importorskip("ray")
ROOT = Path(__file__).parents[2]
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1", "RAY_DEDUP_LOGS": "0"}
PROGRAM = "tests.fleet.cluster_program"


def run_program(folder: Path, budget_s: float, kill_after: int) -> dict[str, Any]:
    command = [sys.executable, "-m", PROGRAM, str(folder), str(budget_s), str(kill_after)]
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, **QUIET, "PYTHONPATH": path}
    environment.pop("RAY_ADDRESS", None)
    ended = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert not ended.returncode, ended.stderr[-3000:]
    return json.loads(ended.stdout.splitlines()[-1])


def test_a_search_outlives_a_node_that_is_killed(tmp_path: Path) -> None:
    found = run_program(tmp_path, 10.0, kill_after=2)
    assert found["ms"] < 1e3
    assert found["before"] >= 2
    assert found["kept"]  # every line that was written before is still there
    assert found["after"] > found["before"]
    assert len(found["losses"]) == 1
    assert found["workers"] == 2
    here = target_of(torch.device("cpu"))
    name = describe_device(here).rpartition(",")[0]
    assert found["winners"] == [f"{name}, 1 threads"]
