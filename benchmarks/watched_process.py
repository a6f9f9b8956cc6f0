"""A Python module run as a process that talks in JSON lines and may crash or hang."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


class WatchedProcess:
    """Runs ``python -m`` with arguments; killed when nothing is heard for ``timeout_s``."""

    def __init__(
        self, arguments: Sequence[str], environment: Mapping[str, str], timeout_s: float
    ) -> None:
        self._arguments = list(arguments)
        self._environment = dict(environment)
        self._timeout_s = timeout_s
        self._status = 0
        self._is_late = False
        self._last_words = ""

    def messages(self) -> Iterator[dict[str, Any]]:
        """What it says; whatever else libraries print is passed over."""
        command = [sys.executable, "-m", *self._arguments]
        with (
            tempfile.TemporaryFile("w+") as errors,
            subprocess.Popen(
                command,
                cwd=ROOT,
                env=self._environment,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            ) as process,
        ):
            yield from self._listen(process)
            self._status = process.wait()
            errors.seek(0)
            self._last_words = (errors.read().strip().splitlines() or [""])[-1]

    def cause_of_death(self) -> str:
        """Why it ended early."""
        if self._is_late:
            return f"no answer in {self._timeout_s:.0f} s"
        if self._status < 0:
            return f"killed by {signal.Signals(-self._status).name}"
        return f"exit {self._status}: {self._last_words}"

    def _listen(self, process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
        assert process.stdout is not None
        timer = self._start_timer(process)
        is_over = False
        try:
            for line in process.stdout:
                timer.cancel()
                if line.startswith("{"):
                    yield json.loads(line)
                timer = self._start_timer(process)
            is_over = True
        finally:
            timer.cancel()
            if not is_over:
                # Nobody listens any more.
                process.kill()

    def _start_timer(self, process: subprocess.Popen[str]) -> threading.Timer:
        def give_up() -> None:
            self._is_late = True
            process.kill()

        timer = threading.Timer(self._timeout_s, give_up)
        timer.daemon = True
        timer.start()
        return timer
