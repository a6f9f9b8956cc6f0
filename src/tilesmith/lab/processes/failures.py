"""How a child process can fail, as exceptions that are also values: they can be pickled."""

from __future__ import annotations

import signal

TAIL_LINES = 20


class ChildError(RuntimeError):
    """Root of the failures of a child process."""


class ChildDied(ChildError):  # noqa: N818 - says what has happened
    """The child ended before it answered."""

    def __init__(
        self, exit_code: int, log_tail: str = "", stage: str = "job", note: str = ""
    ) -> None:
        super().__init__(exit_code, log_tail, stage, note)
        self.exit_code = exit_code
        """As of subprocess: negative for a signal."""
        self.log_tail = log_tail
        """The end of what it wrote to stdout and stderr."""
        self.stage = stage
        """``start`` before it was ready, ``job`` afterwards."""
        self.note = note
        """Why it was ended by its parent, if it was."""

    @property
    def signal_name(self) -> str:
        """The signal that ended it, e.g. SIGSEGV; empty if none did."""
        try:
            return signal.Signals(-self.exit_code).name if self.exit_code < 0 else ""
        except ValueError:
            return f"signal {-self.exit_code}"

    @property
    def reason(self) -> str:
        """In one line what happened."""
        how = self.signal_name or f"exit code {self.exit_code}"
        hint = "out of memory, or killed from outside" if self.signal_name == "SIGKILL" else ""
        when = " while starting" if self.stage == "start" else ""
        return f"process died{when}: {self.note or (f'{how} ({hint})' if hint else how)}"

    def __str__(self) -> str:
        return _with_tail(self.reason, self.log_tail)


class ChildTimeout(ChildError):  # noqa: N818
    """The child did not answer in time and was killed."""

    def __init__(self, seconds: float, log_tail: str = "", stage: str = "job") -> None:
        super().__init__(seconds, log_tail, stage)
        self.seconds = seconds
        """How long it was waited for."""
        self.log_tail = log_tail
        """The end of what it wrote, and of the Python stack where it was."""
        self.stage = stage
        """``start`` before it was ready, ``job`` afterwards."""

    @property
    def reason(self) -> str:
        """In one line what happened."""
        what = "did not start" if self.stage == "start" else "no answer"
        return f"{what} within {self.seconds:g} s"

    def __str__(self) -> str:
        return _with_tail(self.reason, self.log_tail)


class ChildUnavailable(ChildError):  # noqa: N818
    """A runner could not be brought back: starting or preparing it failed, not the job asked of it.

    The cause says how.
    """


def _with_tail(reason: str, log_tail: str) -> str:
    lines = log_tail.rstrip().splitlines()[-TAIL_LINES:]
    return "\n  ".join([reason, *lines])
