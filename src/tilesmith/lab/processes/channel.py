"""Messages between a parent and its child: bytes with their length in front, over a socket pair.

A ``Channel`` reads and writes with deadlines and never blocks in one direction while the other
waits. Pickles travel only over such inherited sockets, between our own processes; never from disk.
How a child can fail is an exception that can be pickled, too.
"""

from __future__ import annotations

import pickle
import selectors
import signal
import socket
import traceback
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from struct import Struct
from time import monotonic
from typing import Any

from typing_extensions import override

HEADER = Struct("<4sQ")
MARK = b"TSF1"
CHUNK_BYTES = 1 << 20
"""Of one call to the socket."""
SEND_FLAGS = getattr(socket, "MSG_NOSIGNAL", 0)
# poll has neither select's limit on descriptor numbers nor a descriptor of its own.
Selector: Any = getattr(selectors, "PollSelector", selectors.SelectSelector)
TRACEBACK_CHARACTERS = 4000
TAIL_LINES = 20


class ChannelClosed(ConnectionError):  # noqa: N818 - a state of the channel, caught by its owner
    """The other side has gone; every frame it sent whole has been received."""


class NotAFrame(ValueError):  # noqa: N818
    """What arrived does not begin like a frame: someone else writes to the socket."""


class UnreadableMessage(ValueError):  # noqa: N818
    """A whole frame arrived, and its content cannot be unpickled here."""


def encode(message: object) -> bytes:
    """The payload of a message."""
    return pickle.dumps(message, pickle.HIGHEST_PROTOCOL)


def decode(payload: bytes) -> Any:
    """The message of a payload."""
    try:
        return pickle.loads(payload)
    except Exception as error:
        # Unpickling imports modules and calls constructors: anything may be raised.
        raise UnreadableMessage(f"{type(error).__name__}: {error}") from error


class Channel:
    """One end of a socket pair, as a stream of frames."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._end = end
        self._incoming = bytearray()
        self._outgoing: deque[memoryview] = deque()
        self._has_ended = False

    def fileno(self) -> int:
        """The descriptor of the socket."""
        return self._end.fileno()

    def close(self) -> None:
        """Close the socket; the other side reads to the end of what was sent."""
        self._end.close()
        self._outgoing.clear()

    @property
    def is_closed(self) -> bool:
        """Whether this side has closed it."""
        return self._end.fileno() < 0

    @property
    def is_sending(self) -> bool:
        """Whether posted frames wait for the other side to read."""
        return bool(self._outgoing) and not self._has_ended

    def post(self, payload: bytes) -> None:
        """Queue a frame and send what the socket takes at once; nothing happens if it has ended."""
        self._outgoing.append(memoryview(HEADER.pack(MARK, len(payload))))
        self._outgoing.append(memoryview(payload))
        self.pump()

    def send(self, payload: bytes, timeout_s: float | None = None) -> None:
        """Send a frame wholly, or raise TimeoutError or ChannelClosed."""
        self.post(payload)
        deadline = None if timeout_s is None else monotonic() + timeout_s
        while self.is_sending:
            self._wait_until(deadline)
        if self._outgoing:
            raise ChannelClosed

    def receive(self, timeout_s: float | None = None) -> bytes:
        """The next payload, or TimeoutError or ChannelClosed; nothing is lost by a timeout."""
        deadline = None if timeout_s is None else monotonic() + timeout_s
        while (payload := self.take()) is None:
            self._wait_until(deadline)
        return payload

    def take(self) -> bytes | None:
        """A payload that has arrived, else None; ChannelClosed when none can come any more."""
        start = bytes(self._incoming[: HEADER.size])
        if start[:4] != MARK[: len(start)]:
            raise NotAFrame(f"received {start!r}")
        end = HEADER.size + HEADER.unpack(start)[1] if len(start) == HEADER.size else 0
        if not end or len(self._incoming) < end:
            if self._has_ended:
                raise ChannelClosed
            return None
        payload = bytes(memoryview(self._incoming)[HEADER.size : end])
        del self._incoming[:end]
        return payload

    def pump(self) -> None:
        """Read and write what is possible without waiting."""
        if self.is_closed:
            self._has_ended = True
        try:
            self._write()
            self._read()
        except BlockingIOError:
            pass
        except OSError:
            self._has_ended = True

    def _write(self) -> None:
        while self.is_sending:
            try:
                sent = self._end.send(self._outgoing[0][:CHUNK_BYTES], SEND_FLAGS)
            except (BlockingIOError, BrokenPipeError, ConnectionResetError):
                return  # what the other side sent before it went is still to be read
            self._outgoing[0] = self._outgoing[0][sent:]
            if not self._outgoing[0]:
                self._outgoing.popleft()

    def _read(self) -> None:
        while not self._has_ended:
            data = self._end.recv(CHUNK_BYTES)
            self._incoming += data
            self._has_ended = not data

    def _wait_until(self, deadline: float | None) -> None:
        remaining = None if deadline is None else deadline - monotonic()
        if not pump_any([self], remaining):
            raise TimeoutError


def pump_any(channels: Iterable[Channel], timeout_s: float | None) -> bool:
    """Wait until one of the channels can go on, and let all that can; False after the timeout."""
    with Selector() as selector:
        for channel in channels:
            if channel.is_closed:
                channel.pump()
                return True
            writing = selectors.EVENT_WRITE if channel.is_sending else 0
            selector.register(channel, selectors.EVENT_READ | writing, channel)
        ready = selector.select(None if timeout_s is None else max(timeout_s, 0.0))
    for key, _ in ready:
        key.data.pump()
    return bool(ready)


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


class ChildError(RuntimeError):
    """Root of the failures of a child process."""

    log_tail: str = ""
    """The end of what it wrote to stdout and stderr, and of the Python stack where it hung."""

    @property
    def reason(self) -> str:
        """In one line what happened."""
        return super().__str__()

    def __str__(self) -> str:
        lines = self.log_tail.rstrip().splitlines()[-TAIL_LINES:]
        return "\n  ".join([self.reason, *lines])


@dataclass(eq=False)
class ChildDied(ChildError):  # noqa: N818 - says what has happened
    """The child ended before it answered."""

    exit_code: int
    """As of subprocess: negative for a signal."""
    log_tail: str = ""
    stage: str = "job"
    """``start`` before it was ready, ``job`` afterwards."""
    note: str = ""
    """Why it was ended by its parent, if it was."""

    @property
    def signal_name(self) -> str:
        """The signal that ended it, e.g. SIGSEGV; empty if none did."""
        try:
            return signal.Signals(-self.exit_code).name if self.exit_code < 0 else ""
        except ValueError:
            return f"signal {-self.exit_code}"

    @property
    @override
    def reason(self) -> str:
        how = self.signal_name or f"exit code {self.exit_code}"
        hint = " (out of memory, or killed from outside)" if self.signal_name == "SIGKILL" else ""
        when = " while starting" if self.stage == "start" else ""
        return f"process died{when}: {self.note or f'{how}{hint}'}"


@dataclass(eq=False)
class ChildTimeout(ChildError):  # noqa: N818
    """The child did not answer in time and was killed."""

    seconds: float
    """How long it was waited for."""
    log_tail: str = ""
    stage: str = "job"
    """As of ChildDied."""

    @property
    @override
    def reason(self) -> str:
        what = "did not start" if self.stage == "start" else "no answer"
        return f"{what} within {self.seconds:g} s"


class ChildUnavailable(ChildError):  # noqa: N818
    """A runner could not be brought back: starting or preparing it failed, not the job asked."""
