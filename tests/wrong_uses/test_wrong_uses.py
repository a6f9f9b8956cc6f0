"""Every wrong use of docs/wrong_uses says what the page says; and what it says is of use."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.errors.exception_table import NEVER_RAISED
from tests.wrong_uses.not_shown import NOT_SHOWN
from tests.wrong_uses.pages import CLASSES_SHOWN, FOLDER, Use, all_uses, uses_of, with_texts
from tests.wrong_uses.produce import PROGRAM, Outcome, produce
from tilesmith import exc
from tilesmith.settings import SettingError

USES = all_uses()
MOST_LINES, WIDEST = 12, 120
WRITTEN_WITH = (3, 11)
"""The version of Python whose words are on the pages: others say some of it otherwise."""
ADVICE = re.compile(r"expected|= (?:fix|note|found): |did you mean|Try '|; |: ")
STARTS = re.compile(
    r"error: |Usage: |WARNING|[\w.]+\.(?:py|txt):\d+:|  File |tilesmith\.|no kernel"
)
KINDS = (exc.Base, SettingError, ValueError, OSError)
"""What a wrong use may raise; anything else is an accident."""
EXAMPLES = FOLDER.parents[1] / "tests" / "golden" / "errors"
EVERY_USE = pytest.mark.parametrize("use", USES, ids=[use.name for use in USES])


@EVERY_USE
def test_it_says_what_the_page_says_and_that_is_of_use(use: Use) -> None:
    outcome = produce(use)
    if sys.version_info[:2] == WRITTEN_WITH:
        assert outcome.text == use.text, "python -m tools.wrong_uses writes the pages anew"
    check_text(outcome.text)
    if use.kind == "console" and "tilesmith" in use.code:
        check_command(outcome)
    else:
        check_program(outcome, use)


def check_text(text: str) -> None:
    lines = text.splitlines()
    assert lines, "it was taken without a word"
    assert len(lines) <= MOST_LINES
    assert "Traceback" not in text
    assert "InternalError" not in text
    assert not re.search(r"/src/tilesmith/|site-packages| at 0x|<locals>\.rule", text)


def check_command(outcome: Outcome) -> None:
    assert outcome.raised is None, outcome.text
    is_remark = outcome.text.startswith("no kernel")
    assert outcome.exit_code in ((0,) if is_remark else (1, 2)), outcome.exit_code
    assert STARTS.match(outcome.text), outcome.text


def check_program(outcome: Outcome, use: Use) -> None:
    error = outcome.raised
    assert error is None or isinstance(error, KINDS), repr(error)
    if error is None:
        assert "WARNING" in outcome.text
    if use.page == "language":
        # Device code is compiled later than the line that calls it: the error names its line.
        assert re.search(rf"--> {PROGRAM}:\d+, in ", outcome.text)
    if isinstance(error, exc.BaseError):
        first, *rest = outcome.text.splitlines()
        labels = [line for line in rest if re.match(r" +(= (expected|found|note|fix): )", line)]
        assert labels or "none of" in first, "it says what is wrong, and no more"


def test_there_are_two_hundred_of_all_kinds() -> None:
    assert len(USES) >= 200
    pages = {page.stem: len(uses_of(page)) for page in FOLDER.glob("*.md")}
    assert set(pages) == {"calls", "language", "configs", "settings", "commands", "files"}
    assert min(pages.values()) >= 25
    assert len({use.name for use in USES}) == len(USES)
    assert len({use.code for use in USES}) == len(USES)


def test_every_page_is_as_the_tool_would_write_it() -> None:
    for page in FOLDER.glob("*.md"):
        texts = {use.name: use.text for use in uses_of(page)}
        assert with_texts(page, texts) == page.read_text(encoding="utf-8")


def shown_classes() -> set[str]:
    """Classes of errors and warnings that the pages show, or the examples of the reference."""
    found = {name for use in USES for name in CLASSES_SHOWN.findall(use.text)}
    texts = [path.read_text(encoding="utf-8") for path in EXAMPLES.glob("*.txt")]
    others = {name for text in texts for name in re.findall(r"^(\w+)(?=: )", text, re.MULTILINE)}
    warned = {name for text in texts for name in re.findall(r"WARNING\[(\w+)\]", text)}
    return (found | others | warned) & set(exc.__all__)


def test_every_class_is_shown_or_has_a_reason_not_to_be() -> None:
    unexplained = set(exc.__all__) - shown_classes() - {*NEVER_RAISED, *NOT_SHOWN}
    assert not unexplained
    assert not shown_classes() & {*NOT_SHOWN}


def test_what_is_not_shown_is_tested_where_the_reason_says() -> None:
    root = FOLDER.parents[1]
    for name, (_, place) in NOT_SHOWN.items():
        assert not place or name in (root / place).read_text(encoding="utf-8"), (name, place)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.txt")), ids=lambda path: path.stem)
def test_texts_of_all_mistakes_are_short(path: Path) -> None:
    for text in path.read_text(encoding="utf-8").split("\n\n"):
        check_text(re.sub(r"\A[\w-]+\n", "", text))
