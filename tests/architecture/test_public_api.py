"""The public names are those in the listing, neither more nor fewer.

``public_api.txt`` has one ``module.name`` a line. A change to it is a change of the API: it belongs
in the changelog. ``--update-golden`` rewrites it.
"""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

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
