"""The floor plan only gets simpler: every room keeps to its limit, and so do the figures.

A limit is lowered when a room has shrunk. A new capability brings a limit of its own, for a module
in the folder of its subject, or for a folder of several (docs/decisions/0069).
``python -m tools.house`` prints where we are.
"""

from __future__ import annotations

from functools import cache

import pytest

from tests.architecture.room_limits import ADDED, FIGURES, ROOMS
from tools import house


@cache
def sizes() -> dict[str, tuple[int, int]]:
    return house.rooms(apart=ADDED)


def test_every_package_and_backend_has_a_limit():
    folders = {name for name in sizes() if not name.endswith(("/", ".py", "."))}
    packages = {name for name in folders if "/" not in name}
    backends = {name for name in folders if name.startswith("backends/") and name.count("/") == 1}
    assert packages | backends == set(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_keeps_to_its_limit(room: str):
    files, lines = sizes()[room]
    most_files, most_lines = ROOMS[room]
    assert files <= most_files
    assert lines <= most_lines


@pytest.mark.parametrize("name", ADDED)
def test_what_was_added_keeps_to_its_limit(name: str):
    files, lines = sizes()[name]
    assert lines <= ADDED[name]
    # A folder that holds one module says nothing that the module's name does not.
    assert name.endswith(".py") or files > 2


@pytest.mark.parametrize("room", ROOMS)
def test_a_limit_follows_a_room_that_has_shrunk(room: str):
    # What is won must not be lost again: a room far below its limit gets a new one.
    files, lines = sizes()[room]
    most_files, most_lines = ROOMS[room]
    assert most_files - files <= 2
    assert most_lines - lines <= max(150, lines // 20)


@pytest.mark.parametrize("name", ADDED)
def test_a_limit_follows_what_was_added_and_has_shrunk(name: str):
    _, lines = sizes()[name]
    assert ADDED[name] - lines <= max(150, lines // 20)


def test_the_figures_keep_to_their_limits():
    found = house.figures()
    assert {*found, house.UNUSED} == set(FIGURES)
    assert {name: value for name, value in found.items() if value > FIGURES[name]} == {}


@pytest.mark.full
def test_nothing_is_unused():
    # Vulture reads the whole repository for ten seconds; what it finds does no harm for a day.
    assert len(house.unused_symbols()) <= FIGURES[house.UNUSED]
