"""Grading goes on where it was ended, and leaves no process behind."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path

from tests.fuzzing.children import Say, in_child
from tests.fuzzing.grades import Grades

ROOT = Path(__file__).parents[2]
STARTER = """
import subprocess
from tests.warm_python import warm_python

inner = '''
import os, sys, time
sys.path.insert(0, {root!r})
from tests.fuzzing.children import in_child

def work(say):
    print(os.getppid(), os.getpid(), flush=True)
    time.sleep(600)

in_child(work)
'''
subprocess.run([*warm_python(), "-c", inner])
"""
"""As a tool does: a process of the server has forked one of its own."""


def test_no_process_outlives_the_one_that_asked_for_it() -> None:
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER.format(root=str(ROOT))],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    with starter:
        assert starter.stdout is not None
        running = [os.pidfd_open(int(word)) for word in starter.stdout.readline().split()]
        starter.kill()
    assert len(running) == 2
    for process in running:
        ended, _, _ = select.select([process], [], [], 60)
        assert ended
        os.close(process)


def test_all_that_a_fork_says_is_heard_and_how_it_ends() -> None:
    heard: list[dict[str, int]] = []

    def work(say: Say) -> None:
        say({"tried": 1})
        say({"tried": 2})
        os._exit(3)

    last, status = in_child(work, heard.append)
    assert heard == [{"tried": 1}, {"tried": 2}]
    assert last == {"tried": 2}
    assert os.waitstatus_to_exitcode(status) == 3


def test_grades_are_known_again(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    grades = Grades(path, "0")
    grades.set_right(4, "host", False)
    grades.set_tried("slow", 10)
    grades.set_tried("slow", 20)
    grades.add(name="seen", is_caught=True, tried=40, way="cpu: wrong")
    grades.add(name="missed", is_caught=False, tried=60)
    with path.open("a") as file:
        file.write('{"name": "cut of')
    again, other = Grades(path, "0"), Grades(path, "1")
    assert [again.is_right(4, "host"), again.is_right(4, "interpret")] == [False, None]
    assert [again.tried("slow"), again.tried("seen"), other.tried("slow")] == [20, 0, 0]
    within = [(again.grade("seen", limit) or {}).get("is_caught") for limit in (30, 60)]
    assert within == [False, True]
    assert (again.grade("missed", 60) or {})["is_caught"] is False
    assert again.grade("missed", 300) is None  # more programs may notice it
    assert other.grade("seen", 60) is None
