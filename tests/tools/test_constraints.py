"""Everything that the development environment brings has its version in ``constraints.txt``."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
EXTRAS = ("dev", "ray", "team")


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def constrained() -> dict[str, Requirement]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    found = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {normal(item.name): item for item in found}


def brought() -> set[str]:
    """Names of all packages that come with ours and its extras, here."""
    tomllib: Any = pytest.importorskip("tomllib")  # with Python 3.10 some versions are others
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extra = [line for name in EXTRAS for line in project["optional-dependencies"][name]]
    items = map(Requirement, [*project["dependencies"], *extra])
    waiting = [(item, ("", *sorted(item.extras))) for item in items if item.name != "tilesmith"]
    seen: set[tuple[str, tuple[str, ...]]] = set()
    while waiting:
        item, extras = waiting.pop()
        key = normal(item.name), extras
        if key in seen:
            continue
        try:
            listed = distribution(item.name).requires or []
        except PackageNotFoundError:
            continue  # not installed: nothing that tests use needs it
        seen.add(key)
        for needed in map(Requirement, listed):
            marker = needed.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in extras):
                waiting.append((needed, ("", *sorted(needed.extras))))
    return {name for name, _ in seen}


def test_each_has_one_version() -> None:
    assert not [item for item in constrained().values() if not str(item.specifier).startswith("==")]


def test_nothing_is_left_to_the_day_of_installation() -> None:
    assert {"torch", "aiohttp", "pytest"} <= brought()
    assert brought() - constrained().keys() == set()
