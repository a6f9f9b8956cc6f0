"""Many at once: eight searches of one kernel, and forks of a process with threads."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import tilesmith
from tests.tune.kernels import add_function
from tools.faults import search as trial
from tools.faults.kills import judge, leftovers
from tools.faults.rows import Row

GROUP = "crowds"
NUM_SEARCHES = 8


def crowd(root: Path) -> Iterator[Row]:
    """All of this group."""
    yield _many_searches(root / "searches")
    yield from _forks(root)


def _many_searches(root: Path) -> Row:
    """Eight processes with one cache search the same kernel at the same time."""
    spots = [
        trial.Spot(root / str(number), cache=root / "cache", budget_s=300.0)
        for number in range(NUM_SEARCHES)
    ]
    pids: list[int] = []
    for spot in spots:
        pid = os.fork()
        if pid == 0:
            ended = trial.in_fork(spot, trial.search)
            (spot.root / "ended").write_text(json.dumps([ended.code, ended.report]))
            os._exit(0)
        pids.append(pid)
    for pid in pids:
        os.waitpid(pid, 0)
    problems: list[str] = []
    for spot in spots:
        ended = trial.Ended(*json.loads((spot.root / "ended").read_text()))
        own = [*judge(spot, ended, most_failed=0), *leftovers(spot)]
        problems += [f"search {spot.root.name}: {problem}" for problem in own]
    (journal,) = (root / "cache" / "tuning" / "journal").glob("*.jsonl")
    lines = journal.read_text().splitlines()
    whole = [line for line in lines if json.loads(line)["schema"] == 1]
    text = f"all end well; {len(whole)} measurements stand in one journal, each whole"
    return Row(GROUP, "8 searches of one kernel at once", text, tuple(problems), NUM_SEARCHES)


def _forks(root: Path) -> Iterator[Row]:
    spot = trial.Spot(root / "call")
    ended = trial.in_fork(spot, _fork_and_call)
    problems = [] if ended.report == {"codes": [0, 0]} else [f"{ended} {spot.log[-300:]}"]
    text = "the fork computes with one thread; both are right"
    yield Row(GROUP, "fork while threads call kernels with 2 threads", text, tuple(problems))
    spot = trial.Spot(root / "search")
    ended = trial.in_fork(spot, _fork_and_search)
    found = ended.report or {}
    problems = [] if found.get("codes") == [0, 0] else [f"{ended} {spot.log[-300:]}"]
    problems += leftovers(spot)
    text = "both search, each with processes of its own"
    yield Row(GROUP, "fork of a process that has searched", text, tuple(problems))


def _fork_and_call(spot: trial.Spot) -> dict[str, Any]:
    kernel = tilesmith.kernel(add_function, num_threads=2)
    x = torch.arange(1 << 16, dtype=torch.float32)
    expected = x + x
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            kernel(x, x)

    kernel(x, x)
    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    pid = os.fork()
    if pid == 0:
        os._exit(0 if torch.equal(kernel(x, x), expected) else 1)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    stop.set()
    for thread in threads:
        thread.join()
    return {"codes": [code, 0 if torch.equal(kernel(x, x), expected) else 1]}


def _fork_and_search(spot: trial.Spot) -> dict[str, Any]:
    first = trial.search(spot)
    pid = os.fork()
    if pid == 0:
        code = 0 if _is_well(trial.search(spot)) else 1
        trial.build_pool.idle_processes().close()
        os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    again = trial.search(spot)
    return {"codes": [code, 0 if _is_well(first) and _is_well(again) else 1]}


def _is_well(report: dict[str, Any]) -> bool:
    return report["is_right"] and report["is_measured"]
