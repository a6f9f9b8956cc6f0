"""Containers of arguments: items in a fixed order, copies with other items, tensors inside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch

from tilesmith.frontend.containers import (
    cell_contents,
    items_of,
    map_tensors,
    rebuilt,
    tensors_in,
)


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclass(frozen=True)
class Frozen:
    left: Any
    right: Any = 0


CONTAINERS = [
    ([1, "a"], ["[0]", "[1]"]),
    ((1, "a"), ["[0]", "[1]"]),
    (Pair(1, "a"), [".left", ".right"]),
    ({"x": 1, 3: "a"}, ["['x']", "[3]"]),
    (Frozen(1, "a"), [".left", ".right"]),
]


@pytest.mark.parametrize(("container", "suffixes"), CONTAINERS)
def test_items_say_how_python_spells_their_access(container: Any, suffixes: list[str]) -> None:
    items = items_of(container)
    assert items is not None
    assert [item.suffix for item in items] == suffixes
    for item in items:
        assert eval(f"container{item.suffix}", {"container": container}) is item.value
        assert item.get(container) is item.value


@pytest.mark.parametrize(("container", "_"), CONTAINERS)
def test_a_copy_has_the_form_of_the_original_and_new_items(container: Any, _: Any) -> None:
    copy = rebuilt(container, ["p", "q"])
    assert type(copy) is type(container)
    assert [item.value for item in items_of(copy) or ()] == ["p", "q"]
    assert [item.value for item in items_of(container) or ()] == [1, "a"]


@pytest.mark.parametrize("leaf", [1, 2.5, None, "text", torch.zeros(2), Frozen, {1, 2}])
def test_everything_else_is_a_leaf(leaf: Any) -> None:
    assert items_of(leaf) is None


def test_tensors_are_found_and_changed_in_order_at_any_depth() -> None:
    a, b, c = (torch.full([2], float(n)) for n in range(3))
    nested = [a, {"x": (b, 7)}, Frozen(Pair("text", c))]
    assert [id(t) for t in tensors_in(nested)] == [id(a), id(b), id(c)]
    changed = map_tensors(nested, lambda tensor: tensor + 1)
    assert [t[0].item() for t in tensors_in(changed)] == [1.0, 2.0, 3.0]
    assert changed[1]["x"][1] == 7
    assert changed[2].left.left == "text"
    assert a[0] == 0.0


def test_an_empty_cell_holds_none() -> None:
    def outer() -> Any:
        def inner() -> Any:
            return later

        cell = inner.__closure__[0]  # type: ignore[index]
        before = cell_contents(cell)
        later = 5
        return before, cell_contents(cell)

    assert outer() == (None, 5)
