"""A launcher for a Config that nobody has asked for: if it does not build, the next one is taken.

The replacement is never hidden: a warning says what failed and which Config runs instead.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator

from tilesmith.diagnostics import errors
from tilesmith.diagnostics.kernel_warnings import ConfigReplaced, WarningLog
from tilesmith.diagnostics.location import UNKNOWN
from tilesmith.runtime.arguments import Launcher
from tilesmith.schedule.config import Config


class Fallback:
    """Finds the first Config of a list that builds.

    A compiler that fails has launched nothing, so the same values can be launched again. Failures
    while code is made show at once, those of Triton at the first launch.
    """

    def __init__(
        self,
        config: Config,
        find_others: Callable[[], Iterable[Config]],
        make: Callable[[Config], Launcher],
        log: WarningLog,
    ) -> None:
        self._left = _each_once(config, find_others)
        self._make = make
        self._log = log
        self._config = config
        self._lock = threading.Lock()
        self.current = self._next(None)
        """The launcher of the first that builds, as far as is known."""

    def replace(self, failed: Launcher, problem: errors.TritonError) -> Launcher:
        """The launcher to use after a failure; the same for all threads that saw it."""
        with self._lock:
            if failed is self.current:
                self.current = self._next(problem)
            return self.current

    def _next(self, problem: errors.BaseError | None) -> Launcher:
        failed = self._config
        for config in self._left:
            self._config = config
            made = self._try(config)
            if isinstance(made, errors.BaseError):
                problem = problem or made
                continue
            if problem is not None:
                self._warn(failed, problem)
            return made
        if problem is None:
            raise errors.InternalError(problem="no config to launch")
        raise problem

    def _try(self, config: Config) -> Launcher | errors.BaseError:
        try:
            return self._make(config)
        except errors.BaseError as error:
            return error

    def _warn(self, failed: Config, problem: errors.BaseError) -> None:
        self._log.warn(
            ConfigReplaced,
            loc=UNKNOWN,
            failed=failed,
            problem=str(problem).splitlines()[0],
            used=self._config,
        )


def _each_once(first: Config, find_others: Callable[[], Iterable[Config]]) -> Iterator[Config]:
    """Others are looked for only when the first has failed."""
    yield first
    yield from (config for config in find_others() if config != first)
