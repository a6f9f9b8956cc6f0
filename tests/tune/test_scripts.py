"""Scripts that tune, run as a user runs them: no guard around their top level, Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab.processes.living import eventually, is_alive
from tests.warm_python import warm_python

ROOT = Path(__file__).parents[2]
SCRIPT = """\
import sys

import torch
import tilesmith
import tilesmith.language as hl

with open(sys.argv[1], "a") as log:
    log.write("top level\\n")


@tilesmith.kernel(autotune_progress_bar=False, autotune_log_level="debug", num_threads=1)
def add(x, y):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] + y[tile]
    return out


x, y = torch.randn(5000), torch.randn(5000)
BODY
"""
FINITE = """\
from tilesmith.tune import tuner
tuner.MAX_FINALS_S = 0.3
configs = [tilesmith.Config(block_sizes=[size]) for size in (64, 4096)]
found = add.autotune((x, y), budget=100, method="FiniteSearch", configs=configs)
assert torch.equal(add(x, y), x + y)
import os
from tests.lab.processes.living import children
print("found", found.block_sizes, "left", *children(os.getpid()))
"""
ENDLESS = """\
from tilesmith.tune import workers
workers.JointRunner.disturbances = (0, 1)  # whatever else runs here
found = add.autotune((x, y), budget=100, method="RandomSearch", count=100000)
assert torch.equal(add(x, y), x + y)
print("found", found.to_json().replace(chr(10), ""))
"""
LOOKUP = """\
bound = add.bind((x, y))
add(x, y)
print("found", bound.chosen.to_json().replace(chr(10), ""))
"""


@pytest.fixture
def start(tmp_path):
    """Starts the script with a body of its own; all share a cache."""
    processes: list[subprocess.Popen[str]] = []

    def begin(body: str, python: tuple[str, ...] = (sys.executable,)) -> subprocess.Popen[str]:
        file = tmp_path / "tuned_script.py"
        file.write_text(SCRIPT.replace("BODY", body))
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
            "TILESMITH_CACHE_DIR": str(tmp_path / "cache"),
        }
        process = subprocess.Popen(
            [*python, str(file), str(tmp_path / "log")],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        return process

    yield begin
    for process in processes:
        process.kill()
        process.communicate()


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_the_top_level_of_a_script_runs_once_and_its_processes_end_with_it(start, tmp_path):
    process = start(FINITE)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert out.startswith("found [")
    assert (tmp_path / "log").read_text() == "top level\n"
    left = [int(pid) for pid in out.split("left")[1].split()]
    assert len(left) == 2
    assert eventually(lambda: not any(map(is_alive, left)))


def wait_for_outcome(process: subprocess.Popen[str]) -> None:
    """Read the log until a candidate has a time."""
    assert process.stderr is not None
    for line in process.stderr:
        if " ms: Config(" in line:
            return
    pytest.fail("the search ended before it was interrupted")


def test_ctrl_c_ends_a_search_with_its_best_which_later_runs_use(start):
    process = start(ENDLESS)
    wait_for_outcome(process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "interrupted" in err
    found = json.loads(out.removeprefix("found "))
    again = start(LOOKUP, warm_python())
    out, err = again.communicate(timeout=60)
    assert again.returncode == 0, err
    assert json.loads(out.removeprefix("found ")) == found
