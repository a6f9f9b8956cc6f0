"""Whose failure an exception is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.bench.tiny_suite import suite
from tilesmith.bench.job_rows import blank_row, raised_while_timing
from tilesmith.bench.plan import Options, make_plan
from tilesmith.bench.row import Cause, Row, Status
from tilesmith.measure.timer import time_on_cpu


def row_of(work: Callable[[], object], repeats: int = 3) -> Row:
    """The row after timing something that raises."""
    blank = blank_row(make_plan(suite(), Options(device="cpu"))[0])
    with pytest.raises(Exception) as caught:  # noqa: PT011
        time_on_cpu({"work": work}, repeats=repeats)
    return raised_while_timing(blank, caught.value)


def test_what_an_implementation_raises_is_its_own() -> None:
    def work() -> None:
        raise OSError("not here")

    row = row_of(work)
    assert (row.status, row.cause) == (Status.FAILED, Cause.EXCEPTION)
    assert "not here" in row.reason


def test_what_the_timer_raises_is_the_harnesss() -> None:
    row = row_of(None)  # type: ignore[arg-type]
    assert row.status is Status.HARNESS_FAILED
    assert "timing failed at timer.py" in row.reason
    assert "TypeError" in row.reason
