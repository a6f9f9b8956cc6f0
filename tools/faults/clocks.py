"""Wall clocks that jump, while a search runs and between two.

Deadlines and timeouts are told by ``time.monotonic``, which no setting of a clock changes. Wall
clocks stamp records (``store.key``, ``team.exchange``) and tell which objects were used last
(``disk.entries``): these are replaced here by clocks that jump, so it is simulated.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from tests.store.samples import KEY, config
from tilesmith.disk import entries
from tilesmith.disk.entries import ObjectCache, object_key
from tilesmith.store import key as store_key
from tilesmith.store.winners import Winners
from tilesmith.team import exchange
from tilesmith.team.shared_folder import SharedFolder
from tools.faults import search as trial
from tools.faults.kills import judge, leftovers
from tools.faults.rows import SIMULATED, Row

GROUP = "clocks"
YEARS = timedelta(days=3650)
JUMPS = {
    "ten years ahead": YEARS,
    "ten years back": -YEARS,
    "an hour ahead": timedelta(hours=1),
    "an hour back": timedelta(hours=-1),
}
BEFORE_JUMP = 2
"""Looks at the clock before it jumps."""


def jump(by: timedelta, after: int = 0) -> None:
    """Let wall clocks be wrong from now on, or after they were looked at so often."""
    looks = iter(range(1 << 30))
    real_time = time.time

    class JumpingDatetime(datetime):
        """A clock that goes wrong."""

        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            """The time of day, or what it takes for that."""
            found = datetime.now(tz)
            return found + by if next(looks) >= after else found

    store_key.datetime = exchange.datetime = JumpingDatetime  # type: ignore[attr-defined,misc]
    time.time = lambda: real_time() + by.total_seconds()  # type: ignore[assignment]


def jumps(root: Path) -> Iterator[Row]:
    """Both ways, far and near."""
    for name, by in JUMPS.items():
        yield _while_searching(root / f"search {name}", name, by)
        yield _between_pushes(root / f"team {name}", name, by)
        yield _between_cuts(root / f"objects {name}", name, by)


def _while_searching(root: Path, name: str, by: timedelta) -> Row:
    def body(spot: trial.Spot) -> dict[str, Any]:
        jump(by, BEFORE_JUMP)
        return trial.search(spot)

    spot = trial.Spot(root)
    problems = [*judge(spot, trial.in_fork(spot, body), most_failed=0), *leftovers(spot)]
    stored = trial.in_fork(spot, trial.find_stored)
    if stored.report != {"is_stored": True}:
        problems.append(f"the winner is not found by the next process: {stored}")
    text = "the search ends as usual; measurements and the winner are found afterwards"
    return Row(GROUP, f"{name} during a search", text, tuple(problems), how=SIMULATED)


def _between_pushes(root: Path, name: str, by: timedelta) -> Row:
    """One machine of a team has a wrong clock; another has the right one."""
    shared = str(root / "shared")

    def push(spot: trial.Spot) -> dict[str, Any]:
        jump(by)
        Winners(root / "theirs").commit(KEY, config(1), 1.5)
        exchange.push(root / "theirs", SharedFolder(shared), None)
        return {}

    ended = trial.in_fork(trial.Spot(root), push)
    problems = [] if ended.code == 0 else [f"push ended with {ended.code}"]
    found = exchange.pull(root / "ours", SharedFolder(shared), None)
    winner = Winners(root / "ours").lookup(KEY)
    if winner is None or winner.config != config(1):
        problems.append("the winner did not come")
    is_told = any("a clock is wrong" in line for line in found.notes)
    if is_told != (by > exchange.MAX_SKEW):
        problems.append(f"told of the clock: {is_told}")
    text = f"its winner is taken{', and the clock is told of' * is_told}"
    return Row(GROUP, f"a teammate's clock {name}", text, tuple(problems), how=SIMULATED)


def _between_cuts(root: Path, name: str, by: timedelta) -> Row:
    """Objects were stored when the clock was wrong; now it is right, and there are too many."""

    def store(spot: trial.Spot) -> dict[str, Any]:
        jump(by)
        cache = ObjectCache(root / "cache")
        for number in range(10):
            key = object_key([str(number)])
            cache.get(key, lambda: bytes(1000))
            os.utime(cache.path(key), (time.time(), time.time()))
        return {}

    trial.in_fork(trial.Spot(root), store)
    cache = ObjectCache(root / "cache")
    for path in cache.folder.iterdir():
        if abs(by) < timedelta(hours=2):  # neither so old nor so far ahead that it may go
            used = path.stat().st_mtime - 2 * entries.SPARED_S
            os.utime(path, (used, used))
    entries.cut(cache.folder, 5000)
    size = sum(path.stat().st_size for path in cache.folder.glob("*.o"))
    problems = [] if 0 < size <= 5000 else [f"{size} bytes are left of 5000 that may be"]
    made = [cache.get(object_key([str(n)]), partial(bytes, 1000)) for n in range(10)]
    problems += [] if made == [bytes(1000)] * 10 else ["an object is wrong"]
    text = "the folder is cut to its limit; what went is made again"
    return Row(GROUP, f"objects of a clock {name}", text, tuple(problems), how=SIMULATED)
