"""What a search works with: builder, runner, records of earlier searches, filters, a deadline.

The search loop knows these protocols only; processes, files and devices stand behind them. From
outside it is ended by its budget and by Ctrl-C.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import inf
from time import monotonic
from types import FrameType
from typing import Any, NamedTuple, Protocol

from typing_extensions import Self

from tilesmith.jit.bound_kernel import BoundKernel
from tilesmith.schedule.config import Config
from tilesmith.store.outcome import Candidate, Outcome, Verdict
from tilesmith.tune.jobs import BuildReply, CheckJob, CheckReply, Program, ReferenceJob
from tilesmith.tune.result import TuneResult

Samples = tuple[tuple[float, ...], ...]


class Case(NamedTuple):
    """What candidates are measured on: a bound kernel with its arguments."""

    bound: BoundKernel
    args: tuple[Any, ...]


@dataclass(frozen=True)
class EmittedCandidate:
    """A candidate with its emitted programs: one for each workload it is measured on."""

    key: str
    candidate: Candidate
    programs: tuple[Program, ...]
    references: tuple[ReferenceJob | None, ...] = ()
    """Own references of programs, where host code makes something else of each Config."""

    @property
    def checks(self) -> tuple[CheckJob, ...]:
        """What a runner is asked, by workload."""
        references = self.references or (None,) * len(self.programs)
        return tuple(map(CheckJob, self.programs, references))


class TrialFailedError(Exception):
    """The process that ran a candidate gave no answer."""

    def __init__(self, verdict: Verdict, reason: str) -> None:
        super().__init__(reason)
        self.verdict = verdict
        self.reason = reason


class NoTimeError(TrialFailedError):
    """A candidate was not run: the search ends before a process could answer."""

    def __init__(self, reason: str) -> None:
        super().__init__(Verdict.HUNG, reason)


class RunnerLostError(Exception):
    """Candidates cannot be run at all: the process that does it does not start."""


class Builder(Protocol):
    """Compiles candidates, several at a time."""

    def submit(self, emitted: EmittedCandidate) -> None:
        """Start to build, or put it in the queue."""

    def collect(self, timeout_s: float) -> Sequence[tuple[EmittedCandidate, BuildReply]]:
        """What is done; waits for the first result at most that long."""
        ...

    @property
    def num_pending(self) -> int:
        """Candidates submitted and not yet collected."""
        ...

    @property
    def num_jobs(self) -> int:
        """How many are built at a time."""
        ...


class Runner(Protocol):
    """Checks and times candidates in a process of its own.

    Methods raise ``TrialFailedError`` when that process died or was ended for taking too long, and
    ``RunnerLostError`` when it cannot be started again.
    """

    def check(self, emitted: EmittedCandidate, timeout_s: float) -> CheckReply:
        """Build or fetch, run, judge the result; then the candidate is known by its key.

        One that is known is run again as it was timed.
        """
        ...

    def time(self, keys: Sequence[str], repeats: int, timeout_s: float) -> Samples:
        """Samples in milliseconds, interleaved, in the order of the keys; all must be known."""
        ...

    @property
    def disturbances(self) -> tuple[int, int]:
        """Requests for times so far during which others had the cores, and all of them."""
        ...

    def knows(self, key: str) -> bool:
        """Whether the running process has checked this key."""
        ...

    def forget(self, key: str) -> None:
        """It will not be asked for again."""


class Records(Protocol):
    """What is known from earlier searches, and what later ones will know: nothing, at first."""

    def recall(self, config: Config) -> Outcome | None:
        """The outcome of an earlier search under the same conditions."""
        return None

    @property
    def best_ms(self) -> float:
        """The best time among them; infinite if there is none."""
        return inf

    def append(self, outcome: Outcome) -> None:
        """Keep an outcome; a failure to do so is logged, not raised."""

    def commit(self, result: TuneResult) -> None:
        """Store the winner, where later searches and first calls find it."""


class Deadline:
    """A moment on a clock. Time for the finals can be set aside and given back."""

    def __init__(self, budget_s: float, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._start = clock()
        self.budget_s = budget_s
        self.reserved_s = 0.0
        """Kept for what comes after the search."""

    @property
    def elapsed_s(self) -> float:
        """Seconds since the search began."""
        return self._clock() - self._start

    def elapsed_at(self, moment: float) -> float:
        """From the start to a moment on the clock."""
        return moment - self._start

    @property
    def remaining_s(self) -> float:
        """Until the reserved time begins; negative afterwards."""
        return self.budget_s - self.reserved_s - self.elapsed_s

    @property
    def is_over(self) -> bool:
        """Whether the search must end."""
        return self.remaining_s <= 0.0

    @property
    def is_past(self) -> bool:
        """Whether the reserved time is used up as well."""
        return self.elapsed_s >= self.budget_s

    def cap(self, timeout_s: float) -> float:
        """The timeout, or what is left of all time if that is less."""
        return max(0.0, min(timeout_s, self.budget_s - self.elapsed_s))

    def end(self) -> None:
        """The search ends now; what was reserved is left."""
        self.budget_s = min(self.budget_s, self.elapsed_s + self.reserved_s)
        self.reserved_s = 0.0


class Interrupts:
    """While entered, the first SIGINT only sets a flag; a second raises KeyboardInterrupt.

    A wait for a child process is thus never torn apart by the first one. In a thread other than the
    main one, where signals do not arrive, nothing is changed.
    """

    def __init__(self) -> None:
        self.is_requested = False
        self._restore = ExitStack()

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            previous: Any = signal.signal(signal.SIGINT, self._note)
            self._restore.callback(signal.signal, signal.SIGINT, previous)
        return self

    def __exit__(self, *_: object) -> None:
        self._restore.close()

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.is_requested:
            raise KeyboardInterrupt
        self.is_requested = True
