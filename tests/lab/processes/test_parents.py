"""What becomes of children when their parent is interrupted, killed or written carelessly."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.lab.processes.living import BUILD, PLAYFUL, children, eventually, is_alive, script
from tilesmith.lab.processes.child import ChildProcess

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")

WAITING_PARENT = f"""
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in the background inherit none
from tilesmith.lab.processes.build_pool import BuildPool
from tilesmith.lab.processes.child import ChildProcess
from tilesmith.lab.processes.channel import ChildDied
pool = BuildPool({BUILD!r}, jobs=2, timeout_s=60.0)
pool.submit("a", ("hang", None))
pool.submit("b", ("slow", 60.0))
child = ChildProcess({PLAYFUL!r}, is_bare=True)
child.await_ready()
import threading
"""

ASK = """
print("waiting", flush=True)
try:
    child.request(("hang_deaf", None), 60.0)
except KeyboardInterrupt:
    print("interrupted", child.is_alive, flush=True)
    print(child.request(("echo", "again"), 5.0), pool.pending, flush=True)
    pool.close()
    child.close()
"""

ASK_IN_THREAD = """
threading.Thread(target=lambda: ((child.kill(), child.start()),
    print("waiting", flush=True), child.request(("sleep", 60.0), 60.0))).start()
"""


@pytest.fixture
def parents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[subprocess.Popen[str]]]:
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # a killed parent cannot tidy up
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


def start_parent(parents: list[subprocess.Popen[str]], body: str) -> subprocess.Popen[str]:
    parents.append(
        subprocess.Popen(
            [sys.executable, "-c", script(body)],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
    )
    return parents[-1]


def descendants(pid: int) -> list[int]:
    found = children(pid)
    return [*found, *(deeper for child in found for deeper in descendants(child))]


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_interrupt_ends_the_wait_and_not_the_search(parents: list[subprocess.Popen[str]]):
    parent = start_parent(parents, WAITING_PARENT + ASK)
    assert first_line(parent) == "waiting"
    # Server, its two builds, the program one of them waits for, and the other child.
    assert eventually(lambda: len(descendants(parent.pid)) == 5)
    everyone = descendants(parent.pid)
    for pid in (*children(parent.pid), parent.pid):
        os.kill(pid, signal.SIGINT)
    output, _ = parent.communicate(timeout=10)
    assert output.splitlines() == ["interrupted False", "again ('a', 'b')"]
    assert parent.returncode == 0
    assert eventually(lambda: not any(map(is_alive, everyone)))


def kill_parent(parents: list[subprocess.Popen[str]], body: str) -> None:
    """Start a parent, kill it when all its children are there, and see that they end."""
    parent = start_parent(parents, WAITING_PARENT + body)
    assert first_line(parent) == "waiting"
    assert eventually(lambda: len(descendants(parent.pid)) == 5 and len(helpers_of(parent)) == 1)
    # The program that a build waits for has no tie to it of its own; compilers end by themselves.
    helpers = helpers_of(parent)
    everyone = set(descendants(parent.pid)) - helpers
    parent.kill()
    parent.wait()
    assert eventually(lambda: not any(map(is_alive, everyone)))
    for pid in helpers:
        with suppress(ProcessLookupError):  # a build that could still react has ended it
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("body", [ASK, ASK_IN_THREAD], ids=["main thread", "other thread"])
def test_children_of_a_killed_parent_end(parents: list[subprocess.Popen[str]], body: str):
    kill_parent(parents, body)


def helpers_of(parent: subprocess.Popen[str]) -> set[int]:
    """The programs that builds wait for; one has its name only some time after it was forked."""
    return {pid for pid in descendants(parent.pid) if "sleep" in name_of(pid)}


def name_of(pid: int) -> str:
    """Empty for a process that has ended meanwhile."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def test_children_end_with_a_parent_that_forgets_to_close(parents: list[subprocess.Popen[str]]):
    body = WAITING_PARENT + "print('waiting', child.pid, pool.server.pid, flush=True)\n"
    parent = start_parent(parents, body)
    pids = [int(word) for word in first_line(parent).split()[1:]]
    assert parent.wait(10) == 0
    assert eventually(lambda: not any(map(is_alive, pids)))


def test_a_fork_of_the_parent_leaves_its_children_alone(parents: list[subprocess.Popen[str]]):
    body = f"""
import os
from tilesmith.lab.processes.child import ChildProcess
child = ChildProcess({PLAYFUL!r}, is_bare=True)
first = child.request(("pid", None), 5.0)
if os.fork() == 0:
    sys.exit(0)
os.wait()
print(child.request(("pid", None), 5.0) == first, child.num_starts)
"""
    assert first_line(start_parent(parents, body)) == "True 1"


def test_the_top_level_of_an_unguarded_script_runs_once(tmp_path: Path):
    body = f"""
print("top level", flush=True)
from tilesmith.lab.processes.build_pool import BuildPool
from tilesmith.lab.processes.child import ChildProcess
pool = BuildPool({BUILD!r}, jobs=2, timeout_s=10.0)
pool.submit("a", ("double", 21))
child = ChildProcess({PLAYFUL!r}, is_bare=True)
print(child.request(("echo", "child"), 5.0), pool.wait(10.0)[0].reply[0])
"""
    path = tmp_path / "unguarded.py"
    path.write_text(script(body))
    result = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, check=False, timeout=20
    )
    assert (result.stdout, result.stderr) == ("top level\nchild 42\n", "")


def test_modules_beside_the_script_that_shadow_ours_do_no_harm(tmp_path: Path):
    for name in ("frames", "serve", "child", "messages"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('not this one')")
    body = f"""
from tilesmith.lab.processes.child import ChildProcess
print(ChildProcess({PLAYFUL!r}, is_bare=True).request(("echo", "fine"), 5.0))
"""
    path = tmp_path / "user.py"
    path.write_text(script(body))
    result = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert (result.stdout, result.stderr) == ("fine\n", "")


def test_folders_of_a_killed_parent_go_with_the_next_child(
    parents: list[subprocess.Popen[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    kill_parent(parents, ASK)
    assert len(list(tmp_path.glob("tilesmith_child_*.lock"))) > 0
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with ChildProcess(PLAYFUL, is_bare=True) as child:
        child.await_ready()
        assert len(list(tmp_path.glob("tilesmith_child_*.lock"))) == 1
    assert list(tmp_path.iterdir()) == []
