"""Every class of the table is raised by some mistake of these tests, or is listed with a reason."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.errors.all_mistakes import CASES
from tests.errors.exception_table import NEVER_RAISED, TABLE
from tests.errors.test_error_texts import raised_by
from tests.errors.test_warnings import REMARKS
from tilesmith import exc

DOCUMENTED = Path(__file__).parents[2] / "docs" / "errors.md"
RAISED_ELSEWHERE = frozenset(
    ("AutodiffNotSupported", "CacheAssertionError", "InternalError", "TritonError")
)
"""Raised in use, but not by the mistakes of these tests."""


def raised_classes() -> Iterator[type]:
    for cases in CASES.values():
        for case in cases:
            yield type(raised_by(case))
    for warning, _ in REMARKS.values():
        yield warning


@pytest.fixture(scope="module")
def raised() -> set[str]:
    """Names of the classes that mistakes raise, and of their parents."""
    return {parent.__name__ for cls in raised_classes() for parent in cls.__mro__}


@pytest.mark.parametrize("name", TABLE)
def test_the_class_exists(name):
    assert issubclass(getattr(exc, name), exc.Base)


@pytest.mark.parametrize("name", TABLE)
def test_some_mistake_raises_the_class(name, raised):
    assert (name in raised) != (name in NEVER_RAISED), name


def test_only_classes_of_the_table_need_a_reason():
    assert set(NEVER_RAISED) <= set(TABLE)


def test_the_page_of_errors_gives_the_same_reasons():
    rows = [line for line in DOCUMENTED.read_text().splitlines() if line.startswith("| `")]
    unused = {name: why for name, why in NEVER_RAISED.items() if name not in RAISED_ELSEWHERE}
    assert rows == [f"| `{name}` | {why} |" for name, why in sorted(unused.items())]
