"""In which element type a composed function is computed; every result is rounded once.

A composition is a function of tiles of one float type. These wrappers bring operands into that
type and the result into eager's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilesmith.dtypes import F32, DType
from tilesmith.frontend.emission import apply, as_tile, cast
from tilesmith.frontend.promotion import common_dtype, compute_dtype
from tilesmith.frontend.values import TileValue

Rule = Callable[..., Any]
Composition = Callable[..., TileValue]


def in_wide_type(function: Composition) -> Rule:
    """The type of the first operand, fp32 for half types."""

    def rule(input: TileValue, *args: Any, inplace: bool = False, **kwargs: Any) -> TileValue:
        wide = cast(input, compute_dtype(input.tile.dtype))
        return cast(function(wide, *args, **kwargs), input.tile.dtype)

    return rule


def in_common_type(function: Composition) -> Rule:
    """All operands in the type they promote to, fp32 for half types."""

    def rule(*operands: Any, **kwargs: Any) -> TileValue:
        dtype = common_dtype(*operands)
        wide = [as_tile(operand, compute_dtype(dtype)) for operand in operands]
        return cast(function(*wide, **kwargs), dtype)

    return rule


def in_float_type(function: Composition, num_operands: int = 1) -> Rule:
    """The first operands in the float type they promote to (integers: fp32), wide for half types.

    Further arguments are passed on as they are.
    """

    def rule(*args: Any, **kwargs: Any) -> TileValue:
        dtype = float_dtype(*args[:num_operands])
        wide = [as_tile(operand, compute_dtype(dtype)) for operand in args[:num_operands]]
        return cast(function(*wide, *args[num_operands:], **kwargs), dtype)

    return rule


def float_dtype(*operands: Any) -> DType:
    """What operands promote to, integers and bools counting as fp32."""
    dtype = common_dtype(*operands)
    return dtype if dtype.is_float else F32


def polynomial(x: TileValue, coefficients: tuple[float, ...]) -> TileValue:
    """Horner's rule, the coefficient of the highest power first."""
    first, *others = coefficients
    result: Any = first
    for coefficient in others:
        result = apply("fma", x, result, coefficient)
    return result
