"""Launchers one after the other: what fails to build is replaced by what is listed next."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from types import MethodType

import tilesmith.exc as errors
from tilesmith.diagnostics.kernel_warnings import ConfigReplaced, WarningLog
from tilesmith.diagnostics.location import UNKNOWN
from tilesmith.runtime.arguments import Launcher
from tilesmith.schedule.config import Config


class Fallback:
    """A launcher for a config that nobody has asked for: if it does not build, the next is taken.

    A compiler that fails has launched nothing, so the same values can be launched again. Failures
    while code is made show at once, those of Triton at the first launch. A warning says what failed
    and which config runs instead.
    """

    def __init__(
        self,
        config: Config,
        find_others: Callable[[], Iterable[Config]],
        make: Callable[[Config], Launcher],
        log: WarningLog,
        *,
        is_late: bool = False,
    ) -> None:
        self._left = _each_once(config, find_others)
        self._make = make
        self._log = log
        self._is_late = is_late
        """Whether code is built at a launch, which may be refused where that takes minutes."""
        self._config = config
        self._lock = threading.Lock()
        self._current: Launcher | None = None

    def replace(self, failed: Launcher, problem: errors.TritonError) -> Launcher:
        """The launcher to use after a failure; the same for all threads that saw it."""
        with self._lock:
            if self._current is None or failed is self._current:
                return self.advance(problem)
            return self._current

    def advance(self, problem: errors.BaseError | None = None) -> Launcher:
        """The launcher of the next config that can be made; ``problem``: why the last is no use."""
        failed = self._config
        for config, has_others in self._left:
            self._config = config
            try:
                self._current = self._make(config)
            except errors.BaseError as error:
                problem = problem or error
                continue
            # A bound method takes no attribute; it is none that refuses.
            if self._is_late and not isinstance(self._current, MethodType):
                self._current.is_replaceable = has_others  # type: ignore[attr-defined]
            if problem is not None:
                self._warn(failed, problem)
            return self._current
        if problem is None:
            raise errors.InternalError(problem="no config to launch")
        raise problem

    def _warn(self, failed: Config, problem: errors.BaseError) -> None:
        self._log.warn(
            ConfigReplaced,
            loc=UNKNOWN,
            failed=failed,
            problem=str(problem).splitlines()[0],
            used=self._config,
        )


def _each_once(
    first: Config, find_others: Callable[[], Iterable[Config]]
) -> Iterator[tuple[Config, bool]]:
    """Each with whether more may follow. Others are looked for only when the first has failed."""
    yield first, True
    others = [config for config in find_others() if config != first]
    yield from ((config, n < len(others)) for n, config in enumerate(others, 1))
