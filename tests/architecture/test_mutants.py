"""The mutants fit the source and their tests are there, so that the list cannot rot."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tools.mutants.catalogue import MUTANTS
from tools.mutants.mutant import Mutant, MutantNotFoundError, find_file, locate_test, read_source
from tools.mutants.table import PAGE, with_table

AREAS = {
    "frontend", "ir", "interpreter", "analysis", "passes", "schedule", "triton", "cpu", "jit",
    "runtime", "measure", "tuner",
}  # fmt: skip


def test_every_mutant_stands_once_in_the_source():
    texts = read_source()
    for mutant in MUTANTS:
        find_file(mutant, texts)
        assert mutant.after != mutant.before


def test_every_test_is_there_and_runs_without_full():
    for mutant in MUTANTS:
        assert mutant.tests
        for test in mutant.tests:
            locate_test(test)
            # One test of a table would run even if the short run leaves it out.
            assert "[" not in test


def test_there_are_many_all_over_the_compiler():
    assert len(MUTANTS) >= 60
    assert {mutant.area for mutant in MUTANTS} == AREAS
    assert max(Counter(mutant.name for mutant in MUTANTS).values()) == 1


def test_the_table_is_up_to_date():
    text = PAGE.read_text(encoding="utf-8")
    assert text == with_table(text, MUTANTS), "run `python -m tools.mutants --write`"


@pytest.mark.parametrize("before", ["return nowhere", "from __future__"])
def test_text_that_does_not_stand_once_is_refused(before: str):
    texts = {Path("a.py"): "from __future__", Path("b.py"): "from __future__"}
    with pytest.raises(MutantNotFoundError, match="stands"):
        find_file(Mutant("x", "ir", before, "", ()), texts)
