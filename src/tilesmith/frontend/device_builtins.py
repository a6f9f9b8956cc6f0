"""Python builtins as device code sees them.

``range`` loops on the device, ``min``/``max`` take symbolic numbers.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tilesmith.diagnostics import errors
from tilesmith.dtypes import F32, I32, DType
from tilesmith.frontend.debugging import breakpoint, print_builtin
from tilesmith.frontend.emission import as_tile, cast
from tilesmith.frontend.loops import LoopRange, grid
from tilesmith.frontend.tracer import locate
from tilesmith.frontend.values import Scalar, TileValue, dispatch


def device_range(*bounds: Any) -> LoopRange:
    """``range`` in device code is ``hl.grid``: a loop at run time."""
    loop = grid(*bounds[:2], step=bounds[2]) if len(bounds) == 3 else grid(*bounds)
    return replace(loop, is_builtin_range=True)


def _extremum(builtin: Callable[..., Any], name: str) -> Callable[..., Any]:
    def combine(*values: Any, **kwargs: Any) -> Any:
        items = tuple(values[0]) if len(values) == 1 else values
        if not any(isinstance(item, TileValue) for item in items):
            return builtin(items, **kwargs)
        if any(isinstance(item, TileValue) and item.tile.rank for item in items):
            raise errors.InvalidArgumentKind(
                function=builtin.__name__, problem="a tensor with several elements", loc=locate()
            )
        result = items[0]
        for item in items[1:]:
            result = dispatch(name, _of_one_type(result, item), {})
        return result

    return combine


def _of_one_type(first: Any, second: Any) -> tuple[Any, Any]:
    """A number beside a loaded scalar takes the scalar's type, as in ``min(lengths[i], 64)``."""
    for value, other in ((first, second), (second, first)):
        is_loaded = isinstance(value, TileValue) and not isinstance(value, Scalar)
        if is_loaded and isinstance(other, (int, float, Scalar)):
            number = TileValue(cast(as_tile(other), value.tile.dtype).value)
            return (value, number) if value is first else (number, value)
    return first, second


class _NumberType(type):
    """Python's ``int`` or ``float`` that converts runtime numbers too."""

    plain: type
    dtype: DType

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and isinstance(args[0], TileValue):
            return cast(as_tile(args[0]), cls.dtype)
        return cls.plain(*args, **kwargs)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls.plain)

    def __getattr__(cls, name: str) -> Any:
        return getattr(cls.plain, name)


class _Int(metaclass=_NumberType):
    plain, dtype = builtins.int, I32


class _Float(metaclass=_NumberType):
    plain, dtype = builtins.float, F32


def _zip(*sequences: Any) -> list[tuple[Any, ...]]:
    """``zip`` of sequences of one length."""
    lists = [list(sequence) for sequence in sequences]
    lengths = sorted({len(items) for items in lists})
    if len(lengths) > 1:
        raise errors.InvalidArgumentValue(
            function="zip",
            problem=f"the sequences have {' and '.join(map(str, lengths))} items",
            loc=locate(),
        )
    return list(zip(*lists))


HELPER_BUILTINS: dict[str, Any] = {
    "min": _extremum(builtins.min, "minimum"),
    "max": _extremum(builtins.max, "maximum"),
    "int": _Int,
    "float": _Float,
    "print": print_builtin,
    "breakpoint": breakpoint,
}
"""In helper functions, whose loops are Python's."""

DEVICE_BUILTINS: dict[str, Any] = {**HELPER_BUILTINS, "range": device_range, "zip": _zip}
