"""The recorded results of torch functions are true (of a sample of them) and complete."""

from __future__ import annotations

import pytest
import torch

from tilesmith.frontend.functions.torch_functions import TORCH_FUNCTIONS
from tools.op_table.probe import HOST_BACKENDS, Finding, Verdict
from tools.op_table.recorded import DTYPES, RESULTS, Collector, load, overall_mark
from tools.op_table.render import PAGE, render
from tools.op_table.specified import SPECIFIED
from tools.op_table.survey import survey

RECORDED = load()
EACH, EACH_IN_FULL = 148, 37
"""Every so many functions are tried again, in the short run and with --full."""

MEMORY_FORMS = {"__getitem__", "__setitem__", "load", "store"}
"""Rows that are no torch functions: how kernels touch memory, which every call here does."""

PASS, WRONG, UNSUPPORTED, CRASH, NOTHING = (Finding(verdict) for verdict in Verdict)


def test_every_function_of_the_table_has_a_row():
    assert sorted(RECORDED.marks) == sorted(TORCH_FUNCTIONS), "run `make ops`"


def test_every_function_was_tried_on_every_backend():
    untried = {name for name, row in RECORDED.marks.items() if not set(HOST_BACKENDS) <= set(row)}
    assert untried == MEMORY_FORMS, "run `make ops`, or add samples to extra_operators.py"


def test_page_shows_the_recorded_results():
    assert PAGE.read_text(encoding="utf-8") == render(RECORDED), "run `make ops`"


EAGER_ITSELF_VARIES = {
    ("softshrink", "cuda"): "the sign of its zeros depends on type and length",
    ("special_ndtr", "cuda"): "1 + erf(x) cancels, so the last digit of erf decides",
}


def test_no_result_is_a_failure_of_the_compiler():
    bad = {CRASH.verdict.value, WRONG.verdict.value}
    failed = {
        (name, backend)
        for name, row in RECORDED.marks.items()
        for backend, marks in row.items()
        if set(marks) & bad
    }
    assert failed == set(EAGER_ITSELF_VARIES)


def test_specified_functions_are_in_the_table():
    assert [name for name in SPECIFIED if name not in TORCH_FUNCTIONS] == []


def test_recorded_results_come_again(request: pytest.FixtureRequest):
    if torch.__version__.partition("+")[0] != RECORDED.torch_version:
        pytest.skip(f"{RESULTS.name} was recorded with torch {RECORDED.torch_version}")
    each = EACH_IN_FULL if request.config.getoption("--full") else EACH
    chosen = sorted(RECORDED.marks)[::each]
    found = survey(HOST_BACKENDS, only=chosen).marks
    expected = {name: RECORDED.marks[name] for name in chosen}
    assert found == {
        name: {backend: row[backend] for backend in HOST_BACKENDS}
        for name, row in expected.items()
        if name in found
    }
    assert len(found) > len(chosen) / 2


@pytest.mark.parametrize(
    ("findings", "mark"),
    [
        ([PASS, PASS], "p"),
        ([PASS, UNSUPPORTED, NOTHING], "m"),
        ([UNSUPPORTED], "u"),
        ([PASS, UNSUPPORTED, WRONG], "w"),
        ([WRONG, CRASH], "c"),
        ([NOTHING], "-"),
        ([], "-"),
    ],
)
def test_mark_is_the_worst_of_the_samples(findings: list[Finding], mark: str):
    assert overall_mark(findings) == mark


def test_results_of_a_run_replace_those_of_the_same_backends_only():
    older, newer = Collector(), Collector()
    refused = Finding(Verdict.UNSUPPORTED, "why")
    for backend in ("cpu", "cuda"):
        older.add("exp", backend, torch.float32, [refused])
    newer.add("exp", "cpu", torch.float32, [PASS])
    results = older.results()
    results.update(newer.results())
    nothing = "-" * (len(DTYPES) - 1)
    assert results.marks == {"exp": {"cpu": "p" + nothing, "cuda": "u" + nothing}}
    assert results.reasons == {"exp": ["cuda (float32) unsupported: why"]}
