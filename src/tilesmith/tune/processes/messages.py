"""The messages that all children know, and how an exception becomes one."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import Any

from tilesmith.tune.processes.failures import ChildError
from tilesmith.tune.processes.frames import UnreadableMessage, decode

TRACEBACK_CHARACTERS = 4000


@dataclass(frozen=True)
class Ready:
    """The first message of a child: it has imported what it needs."""

    moment: float = 0.0
    """When, by ``time.monotonic``, whose clock is the machine's."""


@dataclass(frozen=True)
class ErrorReply:
    """The handler raised an exception; the child goes on."""

    type_name: str
    message: str
    traceback_tail: str = ""

    @property
    def reason(self) -> str:
        """In one line what happened."""
        lines = self.message.strip().splitlines()
        return f"{self.type_name}: {lines[0]}" if lines else self.type_name


@dataclass(frozen=True)
class LastReply:
    """What a handler answers when its process must not be used again; the parent then kills it."""

    reply: Any


def describe_error(error: BaseException) -> ErrorReply:
    """What can be said of an exception, none of it by pickling it."""
    try:
        message = str(error)
    except Exception:
        message = "(its message cannot be made)"
    lines = traceback.format_exception(type(error), error, error.__traceback__)
    return ErrorReply(type(error).__name__, message, "".join(lines)[-TRACEBACK_CHARACTERS:])


def read_reply(payload: bytes) -> Any:
    """The reply of a payload; one that cannot be read is an ErrorReply."""
    try:
        return decode(payload)
    except UnreadableMessage as error:
        return ErrorReply(type(error).__name__, str(error))


@dataclass(frozen=True)
class BuildSetup:
    """The first message to a build server."""

    function: str
    """``module:name`` of the function from job to reply."""
    num_jobs: int
    timeout_s: float
    preload: tuple[str, ...] = ()
    """Modules to import once before the first build, functions (``module:name``) to call once."""
    can_fork: bool = True


@dataclass(frozen=True)
class BuildRequest:
    """A job for a build server, which passes it on unread."""

    ticket: int
    payload: bytes


@dataclass(frozen=True)
class CancelBuilds:
    """Drop what waits and kill what runs."""


@dataclass(frozen=True)
class BuildResult:
    """What became of a job: the payload of a reply, or a failure."""

    ticket: int
    outcome: bytes | ChildError
    seconds: float
    moment: float = 0.0
    """When it was done, by ``time.monotonic``."""
