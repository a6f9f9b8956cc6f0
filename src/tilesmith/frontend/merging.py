"""What names mean where control flow meets: carried by loops, merged after branches, or unbound.

A name must have one type on all paths; every mismatch is an error that shows its places.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tilesmith.diagnostics import errors
from tilesmith.diagnostics.wording import kind_of
from tilesmith.frontend.emission import cast, full
from tilesmith.frontend.tracer import locate
from tilesmith.frontend.values import Scalar, TileValue
from tilesmith.ir.values import Value

State = tuple[Any, ...]


class Unbound:
    """Stands for a name that has no value here; any use of it is an error that says why."""

    user_name = "a name without a value"

    def __init__(
        self, name: str, error: type[errors.BaseError] = errors.UsedBeforeAssignment
    ) -> None:
        self._name, self._error = name, error

    def fail(self, *_: Any, **__: Any) -> Any:
        """Raise the error."""
        raise self._error(name=self._name, loc=locate())

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


def hint(name: str) -> str:
    """An identifier for what a user calls so: ``parts[0]`` is ``parts_0``."""
    return re.sub(r"\W+", "_", name).strip("_")


def carried_argument(name: str, value: Any) -> Any:
    """Inside the loop a device value bound before it is the region's argument."""
    if isinstance(value, TileValue):
        argument = Value(value.tile, hint(name), value._value.loc)
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
        elif not isinstance(before, Unbound) and now is not inner[position] and now != before:
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
    return error(name=name, loc=locate(), **texts)


def _changed(name: str, before: TileValue, now: TileValue) -> errors.BaseError:
    """A tensor that is not what it was; both values may know the line that made them."""
    places = {f"{value.tile} comes from": value._value.loc for value in (before, now)}
    is_reshaped = before.tile.shape != now.tile.shape
    return errors.ControlFlowTensorMismatch(
        name=name,
        **({"fix": f"start `{name}` with the shape it ends with"} if is_reshaped else {}),
        before=str(before.tile),
        after=str(now.tile),
        loc=locate(),
        related={label: loc for label, loc in places.items() if loc.line},
    )


def _checked_merge(name: str, before: TileValue, now: Any) -> TileValue:
    if isinstance(now, (int, float)) and not isinstance(now, bool):
        now = full(now, before.tile.dtype, before.tile.shape)
    if not isinstance(now, TileValue):
        raise cannot_combine(name, before, now)
    if isinstance(before, Scalar) and before.tile.rank == now.tile.rank == 0:
        now = cast(now, before.tile.dtype)
    if now.tile != before.tile:
        raise _changed(name, before, now)
    return now


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
    if isinstance(left, TileValue) or isinstance(right, TileValue) or left != right:
        raise cannot_combine(name, left, right)
    return False


def unmerged_value(name: str, left: Any, right: Any) -> Any:
    """The value, after a branch, of a name that is no result of it."""
    if left is right:
        return left
    if isinstance(left, Unbound) or isinstance(right, Unbound):
        return Unbound(name, errors.UnboundInBranch)
    return left
