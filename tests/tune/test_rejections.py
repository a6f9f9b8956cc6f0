"""Failures in words."""

from __future__ import annotations

from tilesmith.schedule.config import Config
from tilesmith.store.outcome import Candidate, Outcome, Verdict
from tilesmith.tune.result import describe_total_failure, summarize_rejected


def failure(size: int, verdict: Verdict, reason: str) -> Outcome:
    return Outcome(Candidate(Config(block_sizes=[size])), verdict, reason)


WRONG = failure(8, Verdict.WRONG, "out: 3 of 10 elements differ\nmore")
TOO_LARGE = [failure(size, Verdict.OUT_OF_RESOURCES, "shared memory") for size in (16, 32)]


def test_one_line_says_how_many_and_why():
    counts = {Verdict.OK: 7, Verdict.WRONG: 1, Verdict.OUT_OF_RESOURCES: 2, Verdict.SLOWER: 10}
    assert summarize_rejected(counts, [WRONG, *TOO_LARGE]) == (
        "3 of 20 candidates were not used: 2 out of resources, "
        "1 wrong result (e.g. out: 3 of 10 elements differ)"
    )
    assert summarize_rejected({Verdict.OK: 3, Verdict.SLOWER: 1}, []) == ""


def test_when_all_fail_each_cause_has_an_example():
    assert describe_total_failure([WRONG, *TOO_LARGE]).splitlines() == [
        "none of 3 candidates can be used:",
        "     2  out of resources, e.g. Config(block_sizes=[16])",
        "        shared memory",
        "     1  wrong result, e.g. Config(block_sizes=[8])",
        "        out: 3 of 10 elements differ",
        "        more",
    ]
    assert describe_total_failure([]) == "no candidate was tried"
