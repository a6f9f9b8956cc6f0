"""The public names are those in the listing, neither more nor fewer.

``public_api.txt`` has one ``module.name`` a line. A change to it is a change of the API: it belongs
in the changelog. ``--update-golden`` rewrites it.
"""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from tilesmith.version import __version__

LISTING = Path(__file__).with_name("public_api.txt")
MODULES = (
    "tilesmith",
    "tilesmith.autotuner",
    "tilesmith.exc",
    "tilesmith.language",
    "tilesmith.runtime",
)
# What a kernel written for Helion imports in almost every file.
REQUIRED = {
    "tilesmith": [
        "Config", "Kernel", "RefMode", "Settings", "cdiv", "exc", "jit", "kernel", "language",
        "next_power_of_2", "runtime",
    ],
    "tilesmith.autotuner": [
        "BooleanFragment", "EnumFragment", "IntegerFragment", "PowerOfTwoFragment",
    ],
    "tilesmith.language": [
        "arange", "atomic_add", "constexpr", "dot", "full", "grid", "load", "register_block_size",
        "register_tunable", "specialize", "static_range", "store", "tile", "zeros",
    ],
}  # fmt: skip


def public_names(module_name: str) -> list[str]:
    module = importlib.import_module(module_name)
    for name in module.__all__:
        assert hasattr(module, name), f"{module_name}.__all__ names {name}, which is not there"
    return [f"{module_name}.{name}" for name in sorted(module.__all__)]


def test_public_names_match_the_listing(pytestconfig: pytest.Config):
    text = "".join(f"{name}\n" for module in MODULES for name in public_names(module))
    if pytestconfig.getoption("--update-golden"):
        LISTING.write_text(text)
    assert text == LISTING.read_text()


@pytest.mark.parametrize("module", REQUIRED)
def test_required_names_are_public(module: str):
    public = public_names(module)
    assert not [name for name in REQUIRED[module] if f"{module}.{name}" not in public]


# What was promised: docs/upgrading.md has the rules.

RELEASED = LISTING.with_name("released_api.txt")
DEPRECATED = LISTING.with_name("deprecated_api.txt")


def number(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def find_broken_promises(
    released: list[str], public: list[str], deprecated: list[str], current: str
) -> list[str]:
    """Names of the last release that are gone too soon, and entries that say nothing true."""
    entries = {words[0]: words[1:] for words in map(str.split, deprecated)}
    problems = [
        f"{name} is gone without a warning before"
        for name in released
        if name not in public and name not in entries
    ]
    for name, (warns, gone) in entries.items():
        if name not in [*released, *public]:
            problems.append(f"{name} was never public")
        is_gone = gone != "-" and number(gone) <= number(current)
        if gone != "-" and number(gone)[:2] <= number(warns)[:2]:
            problems.append(f"{name} warns in {warns} and goes in {gone}: no release between")
        if is_gone == (name in public):
            problems.append(f"{name} goes in {gone}, this is {current}")
    return problems


def listed(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def test_names_of_the_last_release_are_there_or_have_warned() -> None:
    found = find_broken_promises(listed(RELEASED), listed(LISTING), listed(DEPRECATED), __version__)
    assert found == []


def test_the_changelog_begins_with_this_version() -> None:
    text = (LISTING.parents[2] / "CHANGELOG.md").read_text(encoding="utf-8")
    heading = next(line for line in text.splitlines() if line.startswith("## "))
    assert heading.split()[1] == __version__


def test_a_promise_that_is_broken_is_named() -> None:
    released, public = ["t.kept", "t.gone", "t.leaving"], ["t.kept", "t.leaving"]
    expected = ["t.gone is gone without a warning before"]
    assert find_broken_promises(released, public, [], "0.3.0") == expected
    fine = ["t.gone 0.1.0 0.2.0", "t.leaving 0.3.0 0.4.0"]
    assert find_broken_promises(released, public, fine, "0.3.0") == []
    assert find_broken_promises(released, public, ["t.gone 0.2.0 0.2.1"], "0.3.0") == [
        "t.gone warns in 0.2.0 and goes in 0.2.1: no release between"
    ]
    early = ["t.gone 0.1.0 0.4.0"]
    assert find_broken_promises(released, public, early, "0.3.0") == [
        "t.gone goes in 0.4.0, this is 0.3.0"
    ]
    unknown = [*fine, "t.other 0.1.0 0.2.0"]
    assert find_broken_promises(released, public, unknown, "0.3.0") == ["t.other was never public"]


def test_names_that_leave_warn() -> None:
    for name, warns, _ in map(str.split, listed(DEPRECATED)):
        if name in listed(LISTING) and number(warns) <= number(__version__):
            module, _, last = name.rpartition(".")
            with pytest.warns(DeprecationWarning, match=last):
                getattr(importlib.import_module(module), last)
