"""What names mean where control flow meets: carried by loops, merged after branches, or unbound.

A name must have one type on all paths; every mismatch is an error that shows its places. Loops
carry and branches merge single values: a list, tuple or dict goes in and comes out item by item.
Changes that cannot be carried (under a second name, by a call) are refused: every turn of a loop
would see the first state.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

import tilesmith.exc as errors
from tilesmith.diagnostics.wording import kind_of
from tilesmith.frontend.containers import cell_contents, items_of, rebuilt
from tilesmith.frontend.tracing import changed_numbers as numbers
from tilesmith.frontend.tracing.tensors import TensorRef
from tilesmith.frontend.tracing.tile import Tile
from tilesmith.frontend.tracing.values import Scalar, TileValue
from tilesmith.ir.types import Value

State = tuple[Any, ...]


class Unbound:
    """Stands for a name that has no value here; any use of it is an error that says why."""

    user_name = "a name without a value"

    def __init__(
        self, name: str, error: type[errors.BaseError] = errors.UsedBeforeAssignment
    ) -> None:
        self._name, self._error = name, error

    def fail(self, *_: Any, **__: Any) -> Any:
        """Raise the error that says why the name has no value."""
        raise self._error(name=self._name)

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __neg__ = fail
    __rtruediv__ = __matmul__ = __rmatmul__ = __getitem__ = __call__ = __bool__ = __iter__ = fail
    __lt__ = __le__ = __gt__ = __ge__ = __pow__ = __floordiv__ = __mod__ = __index__ = fail

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """A torch function was given the unbound name."""
        for arg in args:
            if isinstance(arg, Unbound):
                arg.fail()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.fail()


def identifier_of(name: str) -> str:
    """An identifier for what a user calls so: ``parts[0]`` is ``parts_0``."""
    return re.sub(r"\W+", "_", name).strip("_")


def carried_argument(name: str, value: Any) -> Any:
    """Inside the loop a device value bound before it is the region's argument."""
    if isinstance(value, TileValue):
        argument = Value(value.tile, identifier_of(name), value._value.loc)
        return Scalar(argument) if isinstance(value, Scalar) else TileValue(argument)
    return value


def merge_carried(
    names: Sequence[str], state: State, inner: list[Any], out: State
) -> list[tuple[int, TileValue]]:
    """Positions of the carried values and what they become, checked against what they were."""
    merged: list[tuple[int, TileValue]] = []
    for position, (name, before, now) in enumerate(zip(names, state, out)):
        if isinstance(before, TileValue):
            merged.append((position, _checked_merge(name, before, now)))
            continue
        if isinstance(before, Unbound) or now is inner[position] or numbers.is_same(before, now):
            continue
        is_scalar = not isinstance(now, TileValue) or not now.tile.rank
        if numbers.is_number(before) and is_scalar and numbers.scalar_for(before, now) is not None:
            raise numbers.NumberChangedError(position, now)
        raise cannot_combine(name, before, now)
    return merged


def cannot_combine(name: str, before: Any, now: Any) -> errors.BaseError:
    """The error for a name with two values that are no versions of one."""
    are_numbers = isinstance(before, (int, float)) and isinstance(now, (int, float, Scalar))
    error = (
        errors.NumberChangedInControlFlow if are_numbers else errors.CantCombineTypesInControlFlow
    )
    texts: dict[str, Any] = {"before": _describe(before), "after": _describe(now)}
    if isinstance(before, list) and isinstance(now, list):
        texts["fix"] = "give the list all its items before, or unroll: hl.static_range(...)"
    return error(name=name, **texts)


def _changed(name: str, before: TileValue, now: TileValue) -> errors.BaseError:
    """A tensor that is not what it was; both values may know the line that made them."""
    places = {f"{value.tile} comes from": value._value.loc for value in (before, now)}
    texts: dict[str, Any] = {}
    if before.tile.shape != now.tile.shape:
        texts["fix"] = f"start `{name}` with the shape it ends with"
    return errors.ControlFlowTensorMismatch(
        name=name,
        **texts,
        before=str(before.tile),
        after=str(now.tile),
        related={label: loc for label, loc in places.items() if loc.line},
    )


def _checked_merge(name: str, before: TileValue, now: Any) -> TileValue:
    version = numbers.as_version(before, now)
    if version is None:
        raise cannot_combine(name, before, now)
    if version.tile != before.tile:
        raise _changed(name, before, version)
    return version


def _describe(value: Any) -> str:
    if isinstance(value, TileValue):
        return f"a device tensor {value.tile}"
    if isinstance(value, (list, tuple, dict)):
        return f"{kind_of(value)} of {len(value)}"
    return f"{value!r}" if isinstance(value, (int, float, str)) else kind_of(value)


def values_after_loop(names: Sequence[str], state: State, results: dict[int, Value]) -> State:
    """The names' values after a loop: its results, what they were, or none."""
    after: list[Any] = []
    for position, (name, before) in enumerate(zip(names, state)):
        if position in results:
            result = results[position]
            after.append(Scalar(result) if isinstance(before, Scalar) else TileValue(result))
        elif isinstance(before, Unbound):
            after.append(Unbound(name, errors.UnboundAfterLoop))
        else:
            after.append(before)
    return tuple(after)


def merges_arms(name: str, left: Any, right: Any) -> bool:
    """Whether a name becomes a result of the branch."""
    if left is right or isinstance(left, Unbound) or isinstance(right, Unbound):
        return False
    if isinstance(left, TileValue) and isinstance(right, TileValue):
        if left.tile != right.tile:
            raise _changed(name, left, right)
        return True
    if not numbers.is_same(left, right):
        raise cannot_combine(name, left, right)
    return False


def unmerged_value(name: str, left: Any, right: Any) -> Any:
    """The value, after a branch, of a name that is no result of it."""
    if left is right:
        return left
    if isinstance(left, Unbound) or isinstance(right, Unbound):
        return Unbound(name, errors.UnboundInBranch)
    return left


Body = Callable[..., State]


@dataclass(frozen=True)
class Spread:
    """The values of some names, containers replaced by their items."""

    names: tuple[str, ...]
    """A name for each item, such as ``parts[0]``."""
    leaves: State
    _user_names: tuple[str, ...]
    _state: State

    def on_leaves(self, body: Body) -> Body:
        """``body``, a function of containers, as one of their items."""

        def run(*values: Any) -> State:
            others = len(values) - len(self.leaves)
            out = body(*values[:others], *self.joined(values[others:]))
            if not isinstance(out, tuple):
                return out
            triples = zip(self._user_names, self._state, out)
            return tuple(now for triple in triples for _, _, now in paired(*triple))

        return run

    def joined(self, leaves: Sequence[Any]) -> State:
        """New containers of the same forms with these items."""
        supply = iter(leaves)
        return tuple(_filled(value, supply) for value in self._state)


def spread(names: Sequence[str], state: State) -> Spread:
    """Spread the containers among the values of some names."""
    flat = [item for pair in zip(names, state) for item in _named_leaves(*pair)]
    leaves = tuple(value for _, value in flat)
    return Spread(tuple(name for name, _ in flat), leaves, tuple(names), state)


def paired(name: str, left: Any, right: Any) -> list[tuple[str, Any, Any]]:
    """Name and both values of every item that two values of one name have."""
    is_missing = isinstance(left, Unbound) or isinstance(right, Unbound)
    if is_missing or not (is_container(left) or is_container(right)):
        return [(name, left, right)]
    if _form(left) != _form(right):
        raise cannot_combine(name, left, right)
    sides = zip(_named_leaves(name, left), _named_leaves(name, right))
    return [(item, a, b) for (item, a), (_, b) in sides]


def joined_arms(left: State, right: State, leaves: Sequence[Any]) -> State:
    """What names are after a branch, from the items that ``paired`` gave for each."""
    supply = iter(leaves)
    return tuple(
        next(supply) if isinstance(b, Unbound) else _filled(a, supply) for a, b in zip(left, right)
    )


def is_container(value: Any) -> bool:
    """Whether it goes through control flow item by item."""
    return isinstance(value, (list, tuple, dict))


def _form(value: Any) -> Any:
    if not is_container(value):
        return None
    return type(value), [(item.suffix, _form(item.value)) for item in items_of(value) or ()]


def _named_leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if not is_container(value):
        yield name, value
        return
    for item in items_of(value) or ():
        yield from _named_leaves(f"{name}{item.suffix}", item.value)


def _filled(value: Any, supply: Iterator[Any]) -> Any:
    if not is_container(value):
        return next(supply)
    return rebuilt(value, [_filled(item.value, supply) for item in items_of(value) or ()])


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
