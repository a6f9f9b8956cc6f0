"""The log of a search: all of its text, where it goes, and when there is none."""

from __future__ import annotations

import logging
import sys
from io import StringIO

import pytest

from tests.tune.report.searches import (
    DEFAULT,
    WINNER,
    failed,
    make_final,
    make_result,
    make_start,
    tell,
    timed,
)
from tilesmith.store.config_text import LOGGER_NAME
from tilesmith.store.outcome import Candidate, Verdict
from tilesmith.tune.listener import Generation, Progress
from tilesmith.tune.report.log import (
    LogListener,
    generation_text,
    make_progress,
    outcome_text,
)
from tilesmith.tune.result import StopReason

GOLDEN = """\
[0s] tuning softmax on NVIDIA H200 (cuda:90)
     arguments: x: bfloat16[8192, 8192]
     method: ModelFirstSearch, budget 15 s, random seed 0, 3.1e+06 configs possible
     starting from: 3 configs (default, 2 model)
     results judged by: fp64 reference, 8 of 1024 programs; roofline 0.0559 ms
[5s] generation 0: 40 candidates, 8 failed, 3 replaced, min=0.05941 mid=0.07096 max=0.1464 ms, \
best Config(block_sizes=[28], num_warps=8)
[10s] generation 1: 40 candidates, 2 failed, 3 replaced, min=0.0583 mid=0.0623 max=0.1242 ms, \
best Config(block_sizes=[40])
[15s] generation 2: 40 candidates, 6 failed, 3 replaced, min=0.05843 mid=0.06037 max=0.07358 ms, \
best Config(block_sizes=[40])
[15s] 20 of 120 candidates were not used: 17 infeasible, 3 wrong result
      120 configs tried (7 known before) in 15.2 s: the budget is used up
      best 0.0581 ms (spread 1.2%), tied with 1 other within 0.4%, 96% of the roofline, \
1.27x faster than the default (0.0735 ms)
      to pin it: @tilesmith.kernel(config=tilesmith.Config(block_sizes=[2], num_stages=1, \
num_warps=8, pid_type='flat', range_flattens=[None]))
"""


@pytest.fixture
def logger():
    """A logger nobody has set up."""
    made = logging.Logger("test.autotune", logging.NOTSET)
    made.parent = None
    return made


def test_the_whole_log_of_a_search(logger, capsys):
    tell(LogListener(logger=logger))
    out, err = capsys.readouterr()
    assert err == GOLDEN
    assert not out


def test_a_quiet_search_that_succeeds_says_nothing(logger, capsys):
    tell(LogListener(logging.WARNING, logger=logger))
    assert capsys.readouterr() == ("", "")


def test_failures_are_left_out_where_nobody_wants_them(logger, capsys):
    tell(LogListener(logger=logger))
    told = capsys.readouterr().err
    tell(LogListener(logger=logger, tells_failures=False))
    left = capsys.readouterr().err
    (line,) = [line for line in told.splitlines() if "candidates were not used" in line]
    assert "were not used" not in left
    assert len(told.splitlines()) == len(left.splitlines()) + 1
    assert line.startswith("[")


def test_every_outcome_is_a_line_for_those_who_debug(logger, capsys):
    tell(LogListener(logging.DEBUG, logger=logger))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == GOLDEN.count("\n") + 120
    assert lines[5] == "[0s] 0.0735 ms: Config(block_sizes=[1])"


def test_the_logger_is_left_as_it_was(logger, capsys):
    logger.setLevel(logging.ERROR)
    tell(LogListener(logger=logger))
    assert capsys.readouterr().err == GOLDEN
    assert logger.level == logging.ERROR
    assert logger.handlers == []


def test_who_has_set_up_logging_gets_records_there_and_only_there(logger, capsys):
    screen = StringIO()
    handler = logging.StreamHandler(screen)
    handler.setFormatter(logging.Formatter("%(levelname)s|%(message)s"))
    logger.addHandler(handler)
    tell(LogListener(logger=logger))
    assert screen.getvalue() == "".join(f"INFO|{line}\n" for line in GOLDEN.splitlines())
    assert capsys.readouterr().err == ""


def test_the_logger_has_the_documented_name(caplog):
    with caplog.at_level(logging.INFO, "tilesmith.autotune"):
        tell(LogListener())
    assert {record.name for record in caplog.records} == {"tilesmith.autotune"}
    assert LOGGER_NAME == "tilesmith.autotune"


def test_a_percent_sign_in_a_reason_is_no_format(logger, capsys):
    listener = LogListener(logging.DEBUG, logger=logger)
    listener.on_outcome(failed(DEFAULT, Verdict.WRONG, "5%s off\nmore"), Progress(1.0, 15.0, 1, 0))
    assert capsys.readouterr().err == "[1s] wrong result (5%s off): Config(block_sizes=[1])\n"


def test_a_weaker_judge_is_a_warning_even_when_quiet(logger, capsys):
    listener = LogListener(logging.WARNING, logger=logger)
    listener.on_start(make_start(judge="first candidate", judge_reason="interpreting takes long"))
    assert (
        capsys.readouterr().err
        == "[0s] results are judged by first candidate: interpreting takes long\n"
    )


def test_a_closed_stderr_ends_nothing(logger, monkeypatch):
    closed = StringIO()
    closed.close()
    for stream in (closed, None):
        monkeypatch.setattr(sys, "stderr", stream)
        LogListener(logger=logger).on_start(make_start())
        assert make_progress(is_enabled=True) is None


def test_a_stored_winner_is_one_line(logger, capsys):
    listener = LogListener(kernel="softmax", logger=logger)
    listener.on_end(make_result(stop=StopReason.CACHED, seconds=0.01, num_tried=0, counts={}))
    assert capsys.readouterr().err == (
        "[0s] softmax: stored config (0.0581 ms): Config(block_sizes=[2], num_warps=8); "
        "force=True (--force) searches again\n"
    )


def test_a_search_without_success_is_a_warning(logger, capsys):
    result = make_result(
        ms=float("inf"),
        problem="none of 2 candidates can be used:\n  2  crashed",
        counts={Verdict.CRASHED: 2},
        num_tried=2,
        num_recalled=0,
    )
    LogListener(logging.WARNING, logger=logger).on_end(result)
    assert (
        capsys.readouterr().err == "[15s] none of 2 candidates can be used:\n        2  crashed\n"
    )
    LogListener(logger=logger).on_end(result)
    assert "best" not in capsys.readouterr().err


def test_a_generation_in_which_nothing_worked():
    counts = {Verdict.CRASHED: 3}
    assert generation_text(Generation(0, 1.0, 3, 0, counts)) == (
        "generation 0: 3 candidates, 3 failed, 0 replaced, min=- mid=- max=- ms, nothing works yet"
    )


def test_an_outcome_from_the_journal_says_so():
    outcome = timed(WINNER, 0.5, is_recalled=True)
    assert outcome_text(outcome) == "0.5 ms (known): Config(block_sizes=[2], num_warps=8)"


def test_a_disturbed_outcome_says_so():
    outcome = timed(WINNER, 0.5, is_disturbed=True)
    assert outcome_text(outcome) == "0.5 ms (disturbed): Config(block_sizes=[2], num_warps=8)"


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"seeds": ()}, "     starting from: random configs"),
        (
            {"seeds": (Candidate(DEFAULT),), "num_known": 1},
            "     starting from: 1 config (seed); 1 measurement known from before",
        ),
        ({"judge": "", "roofline_ms": None}, "     results judged by: nothing"),
        (
            {"space_size": 96.0},
            "     method: ModelFirstSearch, budget 15 s, random seed 0, 96 configs possible",
        ),
        ({"device": ""}, "[0s] tuning softmax on cuda:90"),
    ],
)
def test_headers_of_other_searches(changes, line, logger, capsys):
    LogListener(logger=logger).on_start(make_start(**changes))
    assert line in capsys.readouterr().err.splitlines()


def test_the_default_is_compared_where_both_were_measured_side_by_side(logger, capsys):
    listener = LogListener(logger=logger)
    listener.on_start(make_start())
    listener.on_finals(make_final())
    listener.on_end(make_result(default_ms=99.0))
    assert "1.27x faster than the default (0.0735 ms)" in capsys.readouterr().err


def test_a_default_that_wins_is_named(logger, capsys):
    listener = LogListener(logger=logger)
    listener.on_start(make_start())
    listener.on_end(make_result(config=DEFAULT, ms=0.0581, default_ms=99.0))
    assert "the default config itself" in capsys.readouterr().err


def test_a_closed_stderr_does_not_end_a_search(logger, monkeypatch):
    class Closed:
        def write(self, text):
            raise ValueError("I/O operation on closed file")

    monkeypatch.setattr("sys.stderr", Closed())
    monkeypatch.setattr(logging, "raiseExceptions", False)
    tell(LogListener(logger=logger))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"noise": 0.29, "disturbed": 0.29}, ""),
        ({"noise": 72.6}, "the winner's own times differed by more than 100%"),
        ({"disturbed": 0.8}, "others had the cores in 80% of the measurements"),
        ({"noise": 0.5, "disturbed": 0.9}, "others had the cores in 90% of the measurements"),
    ],
)
def test_a_busy_machine_is_a_warning_even_when_quiet(changes, told, logger, capsys):
    listener = LogListener(logging.WARNING, logger=logger)
    listener.on_end(make_result(**changes))
    err = capsys.readouterr().err
    assert bool(err) is bool(told)
    advice = "search again when the device is quiet (force=True, or --force)"
    assert not told or f"] {told}: {advice}" in err
    assert ("earlier winner" in err) is ("cores" in told)


def test_times_that_say_nothing_are_no_factor_and_no_figure(logger, capsys):
    listener = LogListener(logger=logger)
    listener.on_start(make_start())
    listener.on_end(make_result(ms=0.1, default_ms=19.3, spread=189.14, disturbed=1.0))
    err = capsys.readouterr().err
    assert "best 0.1 ms (spread more than 100%)" in err
    assert "x faster" not in err
    assert "nothing is stored: these times tell no config from another" in err
