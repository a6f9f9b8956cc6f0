"""Searches by the actors and tasks of a real Ray cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

from tilesmith.runtime.device import describe_device, target_of
from tilesmith.store.journal import find_journals

pytest.importorskip("ray")
# Starting a cluster and its workers imports torch in six processes.
pytestmark = pytest.mark.full
ROOT = Path(__file__).parents[2]
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1", "RAY_DEDUP_LOGS": "0"}
PROGRAM = "tests.fleet.cluster_program"


def make_environment() -> dict[str, str]:
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, **QUIET, "PYTHONPATH": path}
    environment.pop("RAY_ADDRESS", None)
    return environment


def run_program(folder: Path, budget_s: float, kill_after: int, what: str) -> dict[str, Any]:
    command = [sys.executable, "-m", PROGRAM, str(folder), str(budget_s), str(kill_after), what]
    environment = make_environment()
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


@pytest.mark.parametrize("what", ["node", "worker"])
def test_a_search_outlives_what_is_killed(tmp_path: Path, what: str) -> None:
    found = run_program(tmp_path, 10.0, kill_after=2, what=what)
    assert found["ms"] < 1e3
    assert found["before"] >= 2
    assert found["kept"]  # every line that was written before is still there
    assert found["after"] > found["before"]
    assert len(found["losses"]) == 1
    assert found["workers"] == 2
    here = target_of(torch.device("cpu"))
    name = describe_device(here).rpartition(",")[0]
    assert found["winners"] == [f"{name}, 1 threads"]


def test_a_search_goes_on_where_a_lost_driver_was(tmp_path: Path) -> None:
    """The driver is killed in the middle; its workers go, and the next one recalls its journal."""
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    node = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": 80 << 20}
    timer = {"resources": {"tilesmith_timer": 1}}
    environment = make_environment()
    with mock.patch.dict(os.environ, environment):
        cluster = cluster_utils.Cluster(initialize_head=True, head_node_args={**node, **timer})
    try:
        words = [sys.executable, "-m", "tests.fleet.driver_program", str(cluster.address)]
        first = subprocess.Popen(
            [*words, str(tmp_path), "120"], cwd=tmp_path, env=environment, stdout=subprocess.PIPE
        )
        deadline = time.monotonic() + 120
        while not (before := journal_lines(tmp_path)) and time.monotonic() < deadline:
            time.sleep(0.1)
        first.kill()
        first.communicate()
        assert before
        ended = subprocess.run(
            [*words, str(tmp_path), "12"], cwd=tmp_path, env=environment, capture_output=True,
            text=True, timeout=200, check=False,
        )  # fmt: skip
        assert not ended.returncode, ended.stderr[-2000:]
        assert float(ended.stdout.split()[0]) < 1e3
        after = journal_lines(tmp_path)
        assert after[: len(before)] == before
        assert len(after) > len(before)
    finally:
        cluster.shutdown()


def journal_lines(folder: Path) -> list[str]:
    return [line for path in find_journals(folder) for line in path.read_text().splitlines()]
