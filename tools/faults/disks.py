"""Disks that are full, read-only or without inodes, under temporary files, the cache, the team's.

A small file system in memory is mounted for each where that is allowed. Elsewhere a hook of Python
refuses to open, make or rename anything below the folder, which is a simulation and says so.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.store.samples import KEY, config, timed
from tilesmith.store.journal import Journal
from tilesmith.store.winners import Winners
from tilesmith.team.exchange import push
from tilesmith.team.shared_folder import SharedFolder, TeamCacheError
from tools.faults import search as trial
from tools.faults.kills import judge, leftovers
from tools.faults.rows import REAL, SIMULATED, Row

GROUP = "disks"
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


@dataclass(frozen=True)
class Disk:
    """A kind of trouble: options of the file system, what is done to it, what is refused."""

    name: str
    options: str
    error: int
    is_filled: bool = False
    is_read_only: bool = False
    num_files: int = 0
    """Made until there are no inodes."""


DISKS = (
    Disk("full", "size=64k", errno.ENOSPC, is_filled=True),
    Disk("full soon", "size=72k", errno.ENOSPC),
    Disk("read-only", "size=4m", errno.EROFS, is_read_only=True),
    Disk("without inodes", "size=4m,nr_inodes=16", errno.ENOSPC, num_files=64),
)


@contextmanager
def mounted(disk: Disk, folder: Path) -> Iterator[str]:
    """Have the trouble in a folder; how it is had."""
    folder.mkdir(parents=True, exist_ok=True)
    if not _mount(folder, disk.options):
        yield SIMULATED
        return
    try:
        _spoil(disk, folder)
        yield REAL
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False)


def _mount(folder: Path, options: str) -> bool:
    if os.geteuid() != 0 or not sys.platform.startswith("linux"):
        return False
    command = ["mount", "-t", "tmpfs", "-o", f"mode=0700,{options}", "tmpfs", str(folder)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _spoil(disk: Disk, folder: Path) -> None:
    try:
        for number in range(disk.num_files):
            (folder / f"other-{number}").touch()
        if disk.is_filled:
            (folder / "other").write_bytes(bytes(1 << 20))
    except OSError:
        pass  # that is what was wanted
    if disk.is_read_only:
        command = ["mount", "-o", "remount,ro", str(folder)]
        subprocess.run(command, capture_output=True, check=True)


def refuse(folder: Path, number: int) -> None:
    """From now on let nothing be written below a folder, as far as Python asks the system."""

    def hook(event: str, args: tuple[Any, ...]) -> None:
        is_write = event in ("os.mkdir", "os.rename", "os.remove", "os.rmdir")
        is_write |= event == "open" and isinstance(args[2], int) and bool(args[2] & _WRITING)
        if is_write and str(args[0]).startswith(f"{folder}{os.sep}"):
            raise OSError(number, os.strerror(number), str(args[0]))

    sys.addaudithook(hook)


def trouble(root: Path) -> Iterator[Row]:
    """Each kind of disk under each kind of folder."""
    for disk in DISKS:
        for name, make in (("temporary folder", _temporary), ("cache folder", _cache)):
            yield _search_on(disk, name, make, root)
        yield _call_on(disk, root)
        yield _push_to(disk, root)


def _temporary(root: Path, folder: Path) -> trial.Spot:
    return trial.Spot(root, temporary=folder)


def _cache(root: Path, folder: Path) -> trial.Spot:
    return trial.Spot(root, cache=folder)


def _on(disk: Disk, how: str, folder: Path, body: trial.Body) -> trial.Body:
    """The body, on a disk that is simulated if there is no other way."""

    def run(spot: trial.Spot) -> dict[str, Any]:
        if how == SIMULATED:
            refuse(folder, disk.error)
        return body(spot)

    return run


def _search_on(disk: Disk, name: str, make: Callable[[Path, Path], trial.Spot], root: Path) -> Row:
    place = root / f"search-{disk.name}-{name}".replace(" ", "-")
    folder = place / "disk"
    with mounted(disk, folder) as how:
        spot = make(place, folder)
        ended = trial.in_fork(spot, _on(disk, how, folder, trial.search))
        problems = [*trial.all_gone(spot), *trial.find_losses(spot)]
        problems += _judge_search(spot, ended)
    # When there is room again all is as usual.
    fresh = make(place, place / "roomy")
    (place / "roomy").mkdir(exist_ok=True)
    fresh.notes.unlink(missing_ok=True)
    again = trial.in_fork(fresh, trial.search)
    problems += [*judge(fresh, again, most_failed=0), *leftovers(fresh)]
    outcome = "the search goes on"
    if ended.report and not ended.report["is_measured"]:
        outcome = f"there is no search: {ended.report['problem'].splitlines()[0]}"
    return Row(
        GROUP, f"{name} {disk.name}", f"{outcome}; results are right", tuple(problems), 1, how
    )


def _judge_search(spot: trial.Spot, ended: trial.Ended) -> list[str]:
    if ended.report is None:
        return [f"it ended with {ended.code}: {spot.log[-400:]}"]
    problems = [] if ended.report["is_right"] else ["the kernel's result is wrong"]
    if not ended.report["is_measured"] and not ended.report["problem"]:
        problems.append("nothing was measured, and nothing says why")
    return problems + (["a traceback"] if "Traceback" in spot.log else [])


def _call_on(disk: Disk, root: Path) -> Row:
    place = root / f"call-{disk.name}".replace(" ", "-")
    folder = place / "disk"
    with mounted(disk, folder) as how:
        spot = trial.Spot(place, cache=folder, temporary=folder)
        ended = trial.in_fork(spot, _on(disk, how, folder, trial.call))
    problems = [] if ended.report == {"is_right": True} else [f"{ended}: {spot.log[-300:]}"]
    problems += ["a traceback"] if "Traceback" in spot.log else []
    text = "code is compiled and not kept; results are right"
    return Row(
        GROUP, f"first call, cache and temporary folder {disk.name}", text, tuple(problems), 1, how
    )


def _push_to(disk: Disk, root: Path) -> Row:
    place = root / f"push-{disk.name}".replace(" ", "-")
    folder, ours = place / "disk", place / "ours"
    Winners(ours).commit(KEY, config(1), 1.5)
    for number in range(200):
        Journal(ours, KEY).append(timed(number))
    before = _contents(ours)
    with mounted(disk, folder) as how:
        spot = trial.Spot(place)
        ended = trial.in_fork(spot, _on(disk, how, folder, lambda spot: _push(folder, ours)))
        left = [path.name for path in folder.rglob("*.part")]
    said = "" if ended.report is None else str(ended.report["error"])
    problems = [f"left behind: {name}" for name in left]
    problems += [] if said.startswith(str(folder)) else [f"{ended} {spot.log[-300:]}"]
    problems += [] if _contents(ours) == before else ["the local cache was changed"]
    last = said.splitlines()[0].removeprefix(f"{folder}: ") if said else ""
    text = f"push says {last!r} and what was written before; nothing here is changed"
    return Row(GROUP, f"team's cache {disk.name}", text, tuple(problems), 1, how)


def _push(folder: Path, ours: Path) -> dict[str, Any]:
    try:
        push(ours, SharedFolder(str(folder)), None)
    except TeamCacheError as error:
        return {"error": str(error)}
    return {"error": ""}


def _contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and "lock" not in path.name)
    return {str(path): path.read_bytes() for path in files}
