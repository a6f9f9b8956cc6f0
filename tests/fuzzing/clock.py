"""Where the time of a program on a GPU goes: Triton's part, this process's own, and all of it."""

from __future__ import annotations

import time
from typing import Any


class Clock:
    """Seconds since it was made.

    Example:
        ``clock = Clock(); ...; clock.seconds()["triton"]``
    """

    triton = 0.0
    """What all compilations of this process took."""

    def __init__(self) -> None:
        self._begin = self._now()

    @classmethod
    def watch_triton(cls) -> None:
        """Have Triton tell what each stage of a compilation takes."""
        from triton import knobs

        knobs.compilation.listener = cls._hear

    @classmethod
    def _hear(cls, *, times: Any, **_: Any) -> None:
        parts = [times.ir_initialization, times.store_results]
        parts += [part for _, part in times.lowering_stages]
        cls.triton += sum(parts) / 1e6

    def _now(self) -> dict[str, float]:
        return {"all": time.monotonic(), "own": time.process_time(), "triton": self.triton}

    def seconds(self) -> dict[str, float]:
        """All, this process's own (processor time), and Triton's (with its assembler's)."""
        now = self._now()
        return {name: round(now[name] - self._begin[name], 2) for name in now}
