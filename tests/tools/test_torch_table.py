"""docs/torch.md says what happens: cells are run again and compared."""

from __future__ import annotations

import pytest

from tools.torch_table.__main__ import (
    FEATURES,
    OUTPUT,
    STATES,
    Feature,
    lines,
    read_marks,
    run,
)

PAGE = OUTPUT.read_text(encoding="utf-8")
FAST = [feature for feature in FEATURES if not feature.is_slow]


def test_the_page_has_what_the_tool_writes():
    marks = read_marks(PAGE)
    written = "\n".join(lines(marks))
    # The version is that of the run which wrote the page.
    assert [a for a, b in zip(written.splitlines(), PAGE.splitlines()) if a != b] in (
        [],
        [line for line in written.splitlines() if line.startswith("torch ")],
    )
    assert all(len(row) == len(STATES) for row in marks.values())


@pytest.mark.parametrize("feature", FAST, ids=lambda feature: feature.name)
def test_cells_are_as_they_were(feature: Feature):
    assert run(feature, "dynamic") == read_marks(PAGE)[feature.name][STATES.index("dynamic")]


@pytest.mark.full
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("feature", FEATURES, ids=lambda feature: feature.name)
def test_all_cells_are_as_they_were(feature: Feature, state: str):
    assert run(feature, state) == read_marks(PAGE)[feature.name][STATES.index(state)]
