"""Python builtins as device code sees them.

``range`` loops on the device, ``min``/``max`` take symbolic numbers.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tilesmith.diagnostics import errors
from tilesmith.dtypes import F32, I32
from tilesmith.frontend.emission import as_tile, cast
from tilesmith.frontend.loops import LoopRange, grid
from tilesmith.frontend.tracer import locate
from tilesmith.frontend.values import TileValue, dispatch


def device_range(*bounds: Any) -> LoopRange:
    """``range`` in device code is ``hl.grid``: a loop at run time."""
    loop = grid(*bounds[:2], step=bounds[2]) if len(bounds) == 3 else grid(*bounds)
    return replace(loop, is_builtin_range=True)


def _extremum(builtin: Callable[..., Any], name: str) -> Callable[..., Any]:
    def combine(*values: Any, **kwargs: Any) -> Any:
        items = tuple(values[0]) if len(values) == 1 else values
        if not any(isinstance(item, TileValue) for item in items):
            return builtin(items, **kwargs)
        result = items[0]
        for item in items[1:]:
            if isinstance(item, TileValue) and item.tile.rank:
                raise errors.InvalidArgumentKind(
                    function=builtin.__name__,
                    problem="a tensor with several elements",
                    loc=locate(),
                )
            result = dispatch(name, (result, item), {})
        return result

    return combine


def _conversion(builtin: Callable[..., Any], dtype: Any) -> Callable[..., Any]:
    def convert(value: Any = 0) -> Any:
        return cast(as_tile(value), dtype) if isinstance(value, TileValue) else builtin(value)

    return convert


def _print(*_: Any, **__: Any) -> Any:
    raise errors.BackendUnsupported(
        operation="print() in device code", backend="triton", loc=locate()
    )


def _breakpoint(*_: Any, **__: Any) -> Any:
    raise errors.BreakpointInDeviceLoopRequiresInterpret(loc=locate())


DEVICE_BUILTINS: dict[str, Any] = {
    "range": device_range,
    "min": _extremum(builtins.min, "minimum"),
    "max": _extremum(builtins.max, "maximum"),
    "int": _conversion(builtins.int, I32),
    "float": _conversion(builtins.float, F32),
    "print": _print,
    "breakpoint": _breakpoint,
}
