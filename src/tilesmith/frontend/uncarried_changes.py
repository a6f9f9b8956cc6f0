"""Refuses changes that control flow cannot carry: every turn of a loop would see the first state.

Names that are bound or given items inside are carried; other objects that change there, under a
second name or by a call, and functions that captured what changes, are errors.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any

from tilesmith.diagnostics import errors
from tilesmith.frontend.carried_containers import is_container
from tilesmith.frontend.containers import cell_contents, items_of
from tilesmith.frontend.merging import State, Unbound
from tilesmith.frontend.tensors import TensorRef
from tilesmith.frontend.tile import Tile
from tilesmith.frontend.tracer import locate
from tilesmith.frontend.values import TileValue

_PROXIES = (TileValue, TensorRef, Tile, Unbound, FunctionType, ModuleType, type)
_DEPTH = 4
"""How deep objects are looked into."""


def check_captures(others: dict[str, Any], state: State) -> None:
    """Refuse functions made before a loop or branch whose captured names are changed inside."""
    changing = [value for value in state if isinstance(value, (TileValue, list, dict))]
    for name, function in others.items():
        cells = getattr(function, "__closure__", None) or ()
        held = [cell_contents(cell) for cell in cells]
        if any(value is item for value in changing for item in held):
            raise errors.StatementNotSupported(
                statement=f"calling `{name}`, made before a name that it reads is changed here,",
                fix="hand the value to the function as an argument",
                loc=locate(),
            )


@contextmanager
def check_others(others: dict[str, Any], state: State) -> Iterator[None]:
    """Refuse code that changes objects which are not carried: each turn would see the first one."""
    for name, value in others.items():
        if isinstance(value, (list, dict)) and any(value is carried for carried in state):
            raise _changed_object(f"a second name, `{name}`, of a list or dict that is changed")
    before = {name: _contents(value, 0) for name, value in others.items()}
    yield
    for name, value in others.items():
        if _contents(value, 0) != before[name]:
            raise _changed_object(f"a call that changes `{name}`")


def _changed_object(problem: str) -> errors.BaseError:
    return errors.StatementNotSupported(
        statement=f"{problem} in a runtime loop or branch",
        fix="have the call return new values, and assign them to names",
        loc=locate(),
    )


def _contents(value: Any, depth: int) -> Any:
    """What an object of the user holds: the identities of its items and attributes."""
    if is_container(value):
        items = [item.value for item in items_of(value) or ()]
    elif isinstance(value, _PROXIES) or depth == _DEPTH:
        return id(value)
    else:
        items = list(getattr(value, "__dict__", {}).values())
    return id(value), [_contents(item, depth + 1) for item in items]
