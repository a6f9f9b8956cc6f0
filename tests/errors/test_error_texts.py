"""One mistake per kernel: the class that is raised, and the whole text the user sees."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.errors.all_mistakes import CASES
from tests.errors.case import Case, row
from tests.errors.definition_mistakes import copy
from tilesmith import exc

EVERY_CASE = [
    pytest.param(case, id=f"{topic}-{case.name}")
    for topic, cases in CASES.items()
    for case in cases
]


def raised_by(case: Case) -> Exception | None:
    try:
        case.call(*case.args, **case.keywords)
    except Exception as error:
        return error
    return None


@pytest.mark.parametrize("case", EVERY_CASE)
def test_the_mistake_raises_its_class(case):
    with pytest.raises(case.error):
        case.call(*case.args, **case.keywords)


@pytest.mark.parametrize("topic", CASES)
def test_texts(topic, golden):
    sections: list[str] = []
    for case in CASES[topic]:
        error = raised_by(case)
        sections.append(f"{case.name}\n{type(error).__name__}: {error}\n")
    golden("\n".join(sections))


@pytest.mark.parametrize("case", EVERY_CASE)
def test_the_mistake_is_reported_with_its_place(case):
    error = raised_by(case)
    if not isinstance(error, exc.BaseError) or not case.has_place:
        return
    assert error.loc is not None, str(error)
    assert Path(error.loc.file).parent == Path(__file__).parent, str(error)


@pytest.mark.parametrize("case", EVERY_CASE)
def test_the_mistake_is_made_again_on_the_second_call(case):
    first, second = raised_by(case), raised_by(case)
    assert type(first) is type(second)
    assert str(first) == str(second)


def test_a_run_of_mistakes_leaves_kernels_working():
    for cases in CASES.values():
        for case in cases:
            raised_by(case)
    assert torch.equal(copy(row()), row())
