"""Pointwise functions that are a few plain operations: tests, comparisons, fractions, fills."""

from __future__ import annotations

import math

import torch

from tilesmith.dtypes import BOOL, F64
from tilesmith.frontend.composition import Rule, float_dtype, in_wide_type
from tilesmith.frontend.elementwise import identity, where
from tilesmith.frontend.emission import Operand, apply, as_tile, broadcast_shapes, cast, full
from tilesmith.frontend.promotion import common_dtype, compute_dtype
from tilesmith.frontend.values import TileValue
from tilesmith.interpreter.torch_dtypes import to_torch

INFINITY = float("inf")


def frac(x: TileValue) -> TileValue:
    """What is behind the point, with the sign of ``x``."""
    return apply("sub", x, apply("trunc", x))


def extreme_number(fn: str) -> Rule:
    """``fmax``/``fmin``: a NaN counts only next to another."""

    def rule(x: Operand, other: Operand) -> TileValue:
        dtype = common_dtype(x, other)
        left, right = as_tile(x, dtype), as_tile(other, dtype)
        result = apply(fn, left, right)
        if not dtype.is_float:
            return result
        result = where(apply("ne", left, left), right, result)
        return where(apply("ne", right, right), left, result)

    return rule


def heaviside(x: TileValue, values: TileValue) -> TileValue:
    """0 below zero, 1 above, and ``values`` at zero."""
    step = cast(apply("gt", x, 0), values.tile.dtype)
    return where(apply("eq", x, 0), values, step)


def nan_to_num(
    x: TileValue, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> TileValue:
    """Numbers for NaN and the infinities: by default zero and the largest of the type."""
    if not x.tile.dtype.is_float:
        return x
    limits = torch.finfo(to_torch(x.tile.dtype))
    result = where(apply("ne", x, x), 0.0 if nan is None else float(nan), x)
    largest = limits.max if posinf is None else float(posinf)
    smallest = limits.min if neginf is None else float(neginf)
    result = where(apply("eq", x, INFINITY), largest, result)
    return where(apply("eq", x, -INFINITY), smallest, result)


def is_equal_to(value: float) -> Rule:
    """``isposinf``/``isneginf``: always false for integers."""

    def rule(x: TileValue) -> TileValue:
        if not x.tile.dtype.is_float:
            return full(False, BOOL, x.tile.shape)
        return apply("eq", x, value)

    return rule


def isclose(
    x: TileValue, other: TileValue, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> TileValue:
    """Equal, or nearer than ``atol + rtol * |other|``."""
    result = apply("eq", x, other)
    dtype = float_dtype(x, other)
    left, right = (cast(tile, compute_dtype(dtype)) for tile in (x, other))
    if equal_nan and x.tile.dtype.is_float:
        both = apply("and", apply("isnan", left), apply("isnan", right))
        result = apply("or", result, both)
    distance = apply("abs", apply("sub", left, right))
    allowed = apply("add", apply("abs", apply("mul", right, rtol)), atol)
    is_near = apply("and", apply("le", distance, allowed), apply("lt", distance, INFINITY))
    return apply("or", result, is_near)


def float_power(base: Operand, exponent: Operand) -> TileValue:
    """``**`` in fp64."""
    return apply("pow", as_tile(base, F64), as_tile(exponent, F64))


def angle(x: TileValue) -> TileValue:
    """Pi for negative numbers, else zero."""
    dtype = float_dtype(x)
    wide = cast(x, compute_dtype(dtype))
    result = where(apply("lt", wide, 0.0), math.pi, full(0.0, wide.tile.dtype))
    return cast(where(apply("ne", wide, wide), wide, result), dtype)


def round_to_decimals(x: TileValue, *, decimals: int = 0) -> TileValue:
    """``torch.round``: half to even; with decimals, of the scaled number."""
    if not x.tile.dtype.is_float or decimals == 0:
        return apply("round", x) if x.tile.dtype.is_float else x
    scale = 10.0 ** abs(decimals)
    there, back = ("mul", "div") if decimals > 0 else ("div", "mul")
    return in_wide_type(lambda wide: apply(back, apply("round", apply(there, wide, scale)), scale))(
        x
    )


def fill(x: TileValue, value: Operand) -> TileValue:
    """``value`` everywhere."""
    shape = broadcast_shapes([x])
    if isinstance(value, TileValue):
        return apply("where", full(True, BOOL, shape), value, x, dtype=x.tile.dtype)
    return full(value, x.tile.dtype, shape)


POINTWISE: dict[str, Rule] = {
    "frac": frac, "fmax": extreme_number("maximum"), "fmin": extreme_number("minimum"),
    "heaviside": heaviside, "nan_to_num": nan_to_num,
    "isposinf": is_equal_to(INFINITY), "isneginf": is_equal_to(-INFINITY),
    "isreal": lambda x: full(True, BOOL, x.tile.shape),
    "isclose": isclose, "float_power": float_power, "angle": angle, "round": round_to_decimals,
    "positive": identity, "real": identity, "fill": fill,
    "zero": lambda x: full(0, x.tile.dtype, x.tile.shape),
}  # fmt: skip
