"""The progress bar: only on terminals, and what it says."""

from __future__ import annotations

import io
import sys

import pytest
from rich.console import Console

from tests.tune.report.searches import DEFAULT, WINNER, failed, make_result, make_start, timed
from tilesmith.store.outcome import Verdict
from tilesmith.tune.listener import Progress
from tilesmith.tune.report import log as module
from tilesmith.tune.report.log import ProgressListener, make_bar, make_progress, status_text

BEST = timed(WINNER, 0.0581)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_there_is_no_bar_where_stderr_is_no_terminal():
    assert make_progress() is None


def test_there_is_a_bar_on_a_terminal_unless_it_is_switched_off(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert isinstance(make_progress(), ProgressListener)
    assert make_progress(is_enabled=False) is None


def test_without_rich_there_is_no_bar(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    assert make_progress() is None


def test_the_status_has_rate_failures_and_the_best():
    progress = Progress(4.0, 15.0, 10, 0, BEST)
    assert status_text(progress, 2) == "10 configs (2.5/s), 2 failed, best 0.0581 ms 2 w8"
    assert status_text(Progress(0.0, 15.0, 1, 0), 0) == "1 config (0.0/s), 0 failed"


@pytest.mark.parametrize("kernel", ["softmax", "[bold]odd"])
def test_a_bar_is_drawn_kept_up_to_date_and_taken_away(kernel):
    screen = Terminal()
    console = Console(file=screen, width=160, force_terminal=True)
    bar = make_bar(console)
    listener = ProgressListener(bar)
    listener.on_start(make_start(kernel=kernel))
    listener.on_outcome(
        failed(DEFAULT, Verdict.CRASHED, "segmentation fault"), Progress(2.0, 15.0, 1, 0)
    )
    progress = Progress(5.0, 15.0, 2, 0, BEST)
    listener.on_outcome(timed(WINNER, 0.0581), progress)
    bar.refresh()
    assert bar.tasks[0].completed == 5.0
    listener.on_end(make_result())
    shown = screen.getvalue()
    assert f"tuning {kernel}" in shown
    assert "2 configs (0.4/s), 1 failed, best 0.0581 ms 2 w8" in shown
    assert "5/15 s" in shown  # preparing is part of the budget
    assert bar.live.is_started is False
    assert "\x1b[?25h" in shown  # the cursor is back
