"""The floor plan only gets simpler: every room keeps to its limit, and so do the figures.

A limit is lowered when a room has shrunk. A new capability brings a folder and a limit of its own,
said in its decision record (docs/decisions/0007). ``python -m tools.house`` prints where we are.
"""

from __future__ import annotations

import pytest

from tests.architecture.room_limits import FIGURES, ROOMS
from tools import house


def test_every_room_has_a_limit():
    assert {name for name in house.rooms() if house.is_room(name)} == set(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_keeps_to_its_limit(room: str):
    files, lines = house.rooms()[room]
    most_files, most_lines = ROOMS[room]
    assert files <= most_files
    assert lines <= most_lines


@pytest.mark.parametrize("room", ROOMS)
def test_a_limit_follows_a_room_that_has_shrunk(room: str):
    # What is won must not be lost again: a room far below its limit gets a new one.
    files, lines = house.rooms()[room]
    most_files, most_lines = ROOMS[room]
    assert most_files - files <= 2
    assert most_lines - lines <= max(150, lines // 20)


def test_the_figures_keep_to_their_limits():
    found = house.figures()
    assert {*found, house.UNUSED} == set(FIGURES)
    assert {name: value for name, value in found.items() if value > FIGURES[name]} == {}


@pytest.mark.full
def test_nothing_is_unused():
    # Vulture reads the whole repository for ten seconds; what it finds does no harm for a day.
    assert len(house.unused_symbols()) <= FIGURES[house.UNUSED]
