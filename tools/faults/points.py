"""Named fault points: every step of a process at which it may be killed.

A step is a frame on a channel (taken, about to be posted, posted), an event of Python's audit hooks
that concerns files below a folder or other processes, or a write to a journal. Nothing in ``src``
knows of them. A process is told what to do by one object, a ``Plan``; children of a process with a
plan find it in the environment variable ``FAULT_PLAN``, which is read here and nowhere else.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tilesmith.lab.processes.channel import Channel

VARIABLE = "FAULT_PLAN"
_GLOBAL = re.compile(rb"\x8c.([A-Za-z]+)\x94\x93", re.DOTALL)
_CHANGING = re.compile(
    r"\d+-[0-9a-f]{8}$|[0-9a-f]{12,}|(?<=tmp/)(tmp)?[a-z0-9_]{8}(?=$|/)|(?<=-)[a-z0-9_]{8}(?=\.pt$)"
)
"""What is different in the names of every run."""
_FILE_EVENTS = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "shutil.rmtree")
_PROCESS_EVENTS = ("subprocess.Popen", "os.fork", "os.killpg", "os.kill")
_WATCHED = (*_FILE_EVENTS, *_PROCESS_EVENTS)


@dataclass(frozen=True)
class Plan:
    """Where one process of a family is killed; without ``point`` steps are only noted."""

    root: str
    """Files below it count."""
    role: str = "parent"
    """Whose steps are meant: parent, runner, server, build."""
    point: str = ""
    occurrence: int = 1
    marker: str = ""
    """A file that is made when the fault has struck, which it then does not do again."""
    notes: str = ""
    """A file to which the steps of all roles are noted."""

    def environment(self) -> dict[str, str]:
        """What children need to follow the plan."""
        return {VARIABLE: json.dumps(asdict(self))}


def plan_of(environment: Mapping[str, str]) -> Plan | None:
    """The plan that a child was given."""
    text = environment.get(VARIABLE, "")
    return Plan(**json.loads(text)) if text else None


class Points:
    """Follows a plan in one process, under a role."""

    def __init__(self, plan: Plan, role: str) -> None:
        self._plan, self.role = plan, role
        self._met: Counter[str] = Counter()
        self._is_busy = False

    def reach(self, step: str) -> None:
        """A step that the process is at; it may be its last."""
        if self.note(step):
            self.strike()

    def note(self, step: str) -> bool:
        """Count a step; whether the fault is due at it."""
        if self._is_busy:  # what the hook itself does
            return False
        self._is_busy = True
        try:
            self._met[step] += 1
            if self._plan.notes:
                with open(self._plan.notes, "a", encoding="utf-8") as file:
                    file.write(f"{self.role}\t{step}\n")
            is_meant = (self.role, step) == (self._plan.role, self._plan.point)
            return is_meant and self._met[step] == self._plan.occurrence and self._is_first_time()
        finally:
            self._is_busy = False

    def _is_first_time(self) -> bool:
        try:
            Path(self._plan.marker).open("x").close()
        except FileExistsError:
            return False
        return True

    def strike(self) -> None:
        """End like a process that the kernel kills: nothing is tidied up."""
        os.kill(os.getpid(), signal.SIGKILL)

    def watch(self) -> None:
        """Have every step of this process and of its forks noted from now on."""
        self._watch_channels()
        self._watch_writes()
        sys.addaudithook(self._audit)

    def become_build(self) -> None:
        """In a fork of the build server."""
        self.role = "build"
        self._met.clear()
        self.reach("start")

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if event not in _WATCHED or self._is_busy:
            return
        if event in _PROCESS_EVENTS:
            self.reach(event)
            return
        path = str(args[0])
        if path.startswith(self._plan.root):
            # A file that is read changes nothing that a restart could see.
            is_read = event == "open" and not (args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
            if not is_read:
                name = _CHANGING.sub("*", path.removeprefix(self._plan.root).lstrip("/"))
                self.reach(f"{event} {name}")

    def _watch_channels(self) -> None:
        post, take = Channel.post, Channel.take
        points = self

        def noted_post(channel: Channel, payload: bytes) -> None:
            name = frame_name(payload)
            points.reach(f"before post {name}")
            post(channel, payload)
            points.reach(f"after post {name}")

        def noted_take(channel: Channel) -> bytes | None:
            payload = take(channel)
            if payload is not None:
                points.reach(f"took {frame_name(payload)}")
            return payload

        Channel.post, Channel.take = noted_post, noted_take  # type: ignore[method-assign]

    def _watch_writes(self) -> None:
        """Writes are not audited. Half of one can be on the disk."""
        write = os.write
        points = self

        def noted_write(handle: int, data: bytes) -> int:
            if not bytes(data[:10]).startswith(b'{"schema"'):
                return write(handle, data)
            points.reach("before write of a measurement")
            if points.note("half of a measurement is written"):
                write(handle, data[: len(data) // 2])
                points.strike()
            written = write(handle, data)
            points.reach("a measurement is written")
            return written

        os.write = noted_write  # type: ignore[assignment]


def frame_name(payload: bytes) -> str:
    """The class of the message in a frame, without unpickling it."""
    found = _GLOBAL.search(payload[:400])
    return found.group(1).decode() if found else "nothing"
