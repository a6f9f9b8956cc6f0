"""Launchers one after the other: what fails to build is replaced by what is listed next."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import tilesmith.exc as errors
from tilesmith.diagnostics.kernel_warnings import ConfigReplaced, WarningLog
from tilesmith.diagnostics.location import UNKNOWN
from tilesmith.runtime.arguments import Launcher
from tilesmith.schedule.config import Config

FindConfigs = Callable[[], Iterable[Config]]


class Fallback:
    """A launcher for a config that nobody has asked for: if it does not build, the next is taken.

    A compiler that fails has launched nothing, so the same values can be launched again. Failures
    while code is made show at once, those of Triton at the first launch. A warning says what failed
    and which config runs instead. Sizes for which code would take minutes to build go to a
    ``Fallback`` of their own; the config stays for all others.
    """

    def __init__(
        self,
        config: Config,
        find_others: FindConfigs,
        make: Callable[..., Launcher],
        log: WarningLog,
        *,
        is_late: bool = False,
    ) -> None:
        self._left = _each_once(config, find_others)
        self._make = make
        """Of a config; where code is built at a launch, also of what launches other sizes."""
        self._log = log
        self._is_late = is_late
        self._config = config
        self._lock = threading.Lock()
        self._current: Launcher | None = None

    def launch(self, *values: Any) -> None:
        """Launch with the first config that builds."""
        used = self._current or self.advance()
        try:
            used(*values)
        except errors.TritonError as problem:
            self.replace(used, problem)
            self.launch(*values)

    def replace(self, failed: Launcher, problem: errors.TritonError) -> Launcher:
        """The launcher to use after a failure; the same for all threads that saw it."""
        with self._lock:
            if self._current is None or failed is self._current:
                return self.advance(problem)
            return self._current

    def advance(self, problem: errors.BaseError | None = None) -> Launcher:
        """The launcher of the next config that can be made; ``problem``: why the last is no use."""
        failed = self._config
        for config, find_rest in self._left:
            self._config = config
            others = (partial(self._find_other, config, find_rest),) if self._is_late else ()
            try:
                self._current = self._make(config, *others)
            except errors.BaseError as error:
                problem = problem or error
                continue
            if problem is not None:
                self._warn(failed, problem)
            return self._current
        if problem is None:
            raise errors.InternalError(problem="no config to launch")
        raise problem

    def _find_other(
        self, config: Config, find_rest: FindConfigs, problem: errors.TritonError
    ) -> Launcher:
        """What launches sizes that a config is not built for: the next, or the last as it is."""
        other = Fallback(config, find_rest, self._make, self._log, is_late=True)
        next(other._left)
        try:
            other.advance(problem)
        except errors.BaseError:
            return self._make(config)
        return other.launch

    def _warn(self, failed: Config, problem: errors.BaseError) -> None:
        self._log.warn(
            ConfigReplaced,
            loc=UNKNOWN,
            failed=failed,
            problem=str(problem).splitlines()[0],
            used=self._config,
        )


def _each_once(first: Config, find_others: FindConfigs) -> Iterator[tuple[Config, FindConfigs]]:
    """Each with what follows. Others are looked for only when the first has failed."""

    def find_rest() -> list[Config]:
        return [config for config in find_others() if config != first]

    yield first, find_rest
    others = find_rest()
    yield from (
        (config, partial(others.__getitem__, slice(n, None))) for n, config in enumerate(others, 1)
    )
