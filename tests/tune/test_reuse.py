"""Searches after the first find processes that are up, and launches find code that is built."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.lab.processes.living import children, eventually, is_alive
from tests.tune.kernels import make_add
from tests.tune.test_faults import block, faults, own_cache, search
from tilesmith.lab.processes.idle import idle_processes
from tilesmith.runtime.native.machine_code import CodeMaker

__all__ = ["faults", "own_cache"]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
ROOT = Path(__file__).parents[2]
X, Y = torch.randn(1000), torch.randn(1000)
SCRIPT = """
import os, torch
from tests.tune.kernels import config, make_add
from tests.lab.processes.living import children
x = torch.randn(1000)
configs = [config(64), config(8)]
make_add().autotune((x, x), budget=60, method="FiniteSearch", configs=configs)
print("left", *children(os.getpid()))
"""


@pytest.fixture(autouse=True)
def nothing_is_left():
    idle_processes().close()
    yield
    idle_processes().close()


def test_a_second_search_uses_the_processes_of_the_first():
    others = set(children(os.getpid()))
    first, _ = search(make_add(), (X, Y), [256, 128])
    kept = set(children(os.getpid())) - others
    assert len(kept) == 2
    assert first.timeline.seconds["runner"] > 0.0
    second, history = search(make_add(), (X[:500], Y[:500]), [256, 64])
    assert set(children(os.getpid())) - others == kept
    assert second.timeline.seconds["runner"] == 0.0
    assert [trial.outcome.verdict.is_timed for trial in history.trials] == [True, True]
    idle_processes().close()
    assert eventually(lambda: not set(children(os.getpid())) & kept)


def test_a_runner_in_which_something_went_wrong_is_not_kept(faults):
    before = set(children(os.getpid()))
    faults(c2="wrong")
    result, _ = search(make_add(), (X, Y), [256, 128])
    assert result.is_measured
    (builder,) = set(children(os.getpid())) - before
    assert "build_server" in Path(f"/proc/{builder}/cmdline").read_text()


def test_kept_processes_end_with_the_script(tmp_path):
    environment = {**os.environ, "TILESMITH_CACHE_DIR": str(tmp_path)}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True
    )
    left = [int(pid) for pid in done.stdout.split("left")[1].split()]
    assert len(left) == 2
    assert eventually(lambda: not any(map(is_alive, left)))


def test_the_first_call_after_a_search_compiles_nothing(own_cache, monkeypatch):
    kernel = make_add()
    result, _ = search(kernel, (X, Y), [256, 128])

    def refuse(self: CodeMaker, text: str) -> bytes:
        raise AssertionError("compiled again")

    monkeypatch.setattr(CodeMaker, "make_object", refuse)
    assert torch.equal(kernel(X, Y), X + Y)
    assert block(result.config) in (256, 128)
    for stored in (own_cache / "native").iterdir():
        stored.unlink()
    other = make_add(config=result.config)
    with pytest.raises(AssertionError, match="compiled again"):
        other(X, Y)
