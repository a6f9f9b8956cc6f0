"""How long the stages and passes of the pipeline take, for the log of topic ``compile``."""

from __future__ import annotations

import logging

from tilesmith.diagnostics.logs import Stopwatch, topic_log
from tilesmith.diagnostics.wording import ms_text

LOG = topic_log("compile")


class StageClock:
    """Is told when a pass or a stage ends."""

    def __init__(self) -> None:
        self._passes, self._stages = Stopwatch(), Stopwatch()

    def end_pass(self, kernel: str, name: str, *, is_changed: bool) -> None:
        """Log how long a pass took."""
        effect = "" if is_changed else ", nothing to do"
        LOG.debug("%s: pass %s %s%s", kernel, name, ms_text(self._passes.lap_ms()), effect)

    def end_stage(self, kernel: str, name: str) -> None:
        """Log how long a stage took."""
        LOG.info("%s: stage %s %s", kernel, name, ms_text(self._stages.lap_ms()))


def find_clock() -> StageClock | None:
    """A clock that starts now, if anybody reads it."""
    return StageClock() if LOG.isEnabledFor(logging.INFO) else None
