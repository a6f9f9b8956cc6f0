"""Which names statements bind, read and change, and which globals helper functions read."""

from __future__ import annotations

import ast
import math
from types import ModuleType

import pytest
import torch

from tilesmith.frontend.read_values.global_reads import globals_read
from tilesmith.frontend.source.names import (
    bound_names,
    definitely_bound,
    find_names,
    is_library,
    read_names,
)


def body(text: str) -> list[ast.stmt]:
    return ast.parse(text).body


@pytest.mark.parametrize(
    ("text", "bound", "read"),
    [
        ("a = b", {"a"}, {"b"}),
        ("a += 1", {"a"}, {"a"}),
        ("a, (b, *c) = d", {"a", "b", "c"}, {"d"}),
        ("for i in n:\n    s = i", {"i", "s"}, {"n", "i"}),
        ("x[i] = y", set[str](), {"x", "i", "y"}),
        ("f = lambda v: v + w", {"f"}, {"w"}),
        ("f = lambda v=d: v", {"f"}, {"d"}),
        ("r = [p * q for p in ps]", {"r"}, {"q", "ps"}),
        ("def g(v):\n    u = v\n    return u + z", {"g"}, {"z"}),
    ],
)
def test_scopes_are_python_s(text: str, bound: set[str], read: set[str]) -> None:
    assert set(bound_names(body(text))) == bound
    assert set(read_names(body(text))) == read


def test_the_first_place_of_a_name_is_kept() -> None:
    places = bound_names(body("a = 1\nb = 2\na = 3"))
    assert [places[name].lineno for name in ("a", "b")] == [1, 2]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("xs.append(1)", ["xs"]),
        ("xs[0][1] = 2", ["xs"]),
        ("xs.sort_keys()", []),
        ("y = xs[0]", ["y"]),
        ("del_ = d.pop('a')", ["del_", "d"]),
    ],
)
def test_objects_that_get_other_items_are_changed(text: str, changed: list[str]) -> None:
    found = find_names(body(text))
    assert list({**found.bound, **found.changed}) == changed


def test_names_bound_in_branches_and_loops_may_be_unbound() -> None:
    text = "a = 1\nif a:\n    b = 2\nfor c in a:\n    d = 3\ne: int = 4"
    assert definitely_bound(body(text)) == {"a", "e"}


SCALE = 3.0
helper = ModuleType("helper")
helper.limit = 7  # type: ignore[attr-defined]


def reads_globals(x: torch.Tensor) -> object:
    def inner() -> object:
        return helper.limit

    return x * SCALE, math.pi, inner


def test_globals_of_a_helper_are_those_it_names_and_attributes_of_modules_that_are_no_library() -> (
    None
):
    found = {
        read.name: read.value for read in globals_read(reads_globals.__code__, dict(globals()))
    }
    assert found == {"SCALE": 3.0, "limit": 7}


def test_torch_python_and_this_package_are_libraries_and_shipped_kernels_are_not() -> None:
    assert is_library(torch)
    assert is_library(math)
    assert is_library(ModuleType("tilesmith.frontend.trace"))
    assert not is_library(ModuleType("tilesmith.kernels.softmax"))
    assert not is_library(reads_globals)
