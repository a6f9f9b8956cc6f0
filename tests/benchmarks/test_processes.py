"""A benchmark process that crashes or hangs costs its own row and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks import cpu, onednn_probe
from benchmarks.watched_process import WatchedProcess

SCRIPTS = {
    "talks": 'print("noise"); print(\'{"job": "a"}\')',
    "crashes": 'import os, signal; print(\'{"job": "a"}\', flush=True);'
    "os.kill(os.getpid(), signal.SIGSEGV)",
    "hangs": "import time; time.sleep(60)",
    "raises": 'raise ValueError("too bad")',
}


def process(name: str, folder: Path, timeout_s: float = 30.0) -> WatchedProcess:
    (folder / f"{name}_script.py").write_text(SCRIPTS[name])
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return WatchedProcess([f"{name}_script"], environment, timeout_s)


def test_messages_are_the_json_lines(tmp_path: Path):
    assert list(process("talks", tmp_path).messages()) == [{"job": "a"}]


@pytest.mark.parametrize(
    ("name", "timeout_s", "cause", "num_messages"),
    [
        ("crashes", 30.0, "killed by SIGSEGV", 1),
        ("hangs", 0.5, "no answer in 0 s", 0),
        ("raises", 30.0, "exit 1: ValueError: too bad", 0),
    ],
)
def test_death_has_a_cause(
    name: str, timeout_s: float, cause: str, num_messages: int, tmp_path: Path
):
    started = process(name, tmp_path, timeout_s)
    assert len(list(started.messages())) == num_messages
    assert started.cause_of_death() == cause


def test_jobs_after_a_crash_get_another_worker(monkeypatch: pytest.MonkeyPatch):
    commands: list[list[str]] = []

    class Mortal:
        def __init__(self, command, environment, timeout_s):
            commands.append(command)
            self.jobs = command[command.index("--") + 1 :]

        def messages(self):
            for job in self.jobs:
                if job == "bad":
                    return
                yield {"job": job, "answer": {}}

        def cause_of_death(self):
            return "killed by SIGSEGV"

    monkeypatch.setattr(cpu, "WatchedProcess", Mortal)
    messages = list(cpu.run_jobs(["a", "bad", "c"], ["--threads=2"], {}, 1.0))
    assert [message["job"] for message in messages] == ["a", "bad", "c"]
    assert messages[1]["answer"] == {"problem": "killed by SIGSEGV"}
    assert [command[-1] for command in commands] == ["c", "c"]


def test_a_death_is_a_row_of_the_right_workload():
    row = cpu.row_of({"job": "softmax bf16", "answer": {"problem": "killed by SIGILL"}})
    assert (row.size, row.goal, row.verdict) == ("4096x4096", 1.1, "failed")


def test_probe_lowers_the_instruction_set_until_products_survive(monkeypatch: pytest.MonkeyPatch):
    def only_below(limit: str):
        return lambda environment: environment.get(onednn_probe.VARIABLE) == limit

    monkeypatch.setattr(onednn_probe, "survives", only_below("AVX512_CORE"))
    environment, change = onednn_probe.find_environment({"KEPT": "1"})
    assert environment == {"KEPT": "1", onednn_probe.VARIABLE: "AVX512_CORE"}
    assert "AVX512_CORE" in change
    monkeypatch.setattr(onednn_probe, "survives", lambda environment: True)
    assert onednn_probe.find_environment({"KEPT": "1"}) == ({"KEPT": "1"}, "")
    monkeypatch.setattr(onednn_probe, "survives", lambda environment: False)
    assert onednn_probe.find_environment({})[0] == {}
