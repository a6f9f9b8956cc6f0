"""Functions that look at the sign, exponent and neighbours of floats, through their bits."""

from __future__ import annotations

from typing import NamedTuple

from tilesmith.dtypes import BOOL, I16, I32, I64, DType
from tilesmith.frontend.composition import Rule
from tilesmith.frontend.elementwise import bitcast, where
from tilesmith.frontend.emission import Operand, apply, as_tile, cast, full
from tilesmith.frontend.promotion import common_dtype, compute_dtype, result_dtype
from tilesmith.frontend.values import TileValue
from tilesmith.interpreter.torch_dtypes import to_torch

_INTEGERS = {16: I16, 32: I32, 64: I64}


class MantissaAndExponent(NamedTuple):
    """What ``torch.frexp`` gives."""

    mantissa: TileValue
    exponent: TileValue


def _bits(x: TileValue) -> TileValue:
    return bitcast(x, to_torch(_INTEGERS[x.tile.dtype.bits]))


def signbit(x: TileValue) -> TileValue:
    """Whether the sign is minus, that of zero and NaN included."""
    if x.tile.dtype.is_bool:
        return full(False, BOOL, x.tile.shape)
    return apply("lt", _bits(x) if x.tile.dtype.is_float else x, 0)


def copysign(x: Operand, sign: Operand) -> TileValue:
    """The magnitude of one with the sign of the other."""
    dtype = result_dtype("copysign", x, sign)
    magnitude = apply("abs", as_tile(x, dtype))
    source = as_tile(sign, None if isinstance(sign, TileValue) else dtype)
    return apply("where", signbit(source), apply("neg", magnitude), magnitude, dtype=dtype)


def ldexp(x: Operand, exponent: Operand) -> TileValue:
    """``x * 2**exponent``."""
    dtype = result_dtype("ldexp", x, exponent)
    wide = compute_dtype(dtype)
    return cast(apply("mul", x, apply("exp2", as_tile(exponent, wide)), dtype=wide), dtype)


def frexp(x: TileValue) -> MantissaAndExponent:
    """A mantissa in [0.5, 1) and the exponent that goes with it."""
    dtype = x.tile.dtype
    wide = cast(x, compute_dtype(dtype))
    fraction_bits = wide.tile.dtype.precision - 1
    # Subnormal numbers are scaled into the normal range first.
    scale = float(2 ** (fraction_bits + 1))
    is_tiny = apply("lt", apply("abs", wide), _smallest_normal(wide.tile.dtype))
    bits = _bits(where(is_tiny, apply("mul", wide, scale), wide))
    field_mask = (1 << (wide.tile.dtype.bits - 1 - fraction_bits)) - 1
    field = apply("and", apply("shr", bits, fraction_bits), field_mask)
    half_field = (field_mask >> 1) - 1
    kept = apply("and", bits, ~(field_mask << fraction_bits))
    mantissa = bitcast(apply("or", kept, half_field << fraction_bits), to_torch(wide.tile.dtype))
    exponent = cast(apply("sub", field, half_field), I32)
    shift = where(is_tiny, full(fraction_bits + 1, I32), full(0, I32))
    is_plain = apply("or", apply("eq", wide, 0), apply("eq", field, field_mask))
    return MantissaAndExponent(
        cast(apply("where", is_plain, wide, mantissa, dtype=wide.tile.dtype), dtype),
        apply("where", is_plain, 0, apply("sub", exponent, shift), dtype=I32),
    )


def _smallest_normal(dtype: DType) -> float:
    return 2.0 ** (2 - 2 ** (dtype.bits - dtype.precision - 1))


def nextafter(x: TileValue, towards: TileValue) -> TileValue:
    """The neighbour of a float in the direction of another."""
    dtype = common_dtype(x, towards)
    x, towards = cast(x, dtype), cast(towards, dtype)
    bits = _bits(x)
    grows = apply("eq", apply("lt", x, towards), apply("gt", x, 0))
    step = apply("where", grows, 1, -1, dtype=bits.tile.dtype)
    neighbour = bitcast(apply("add", bits, step), to_torch(dtype))
    smallest = bitcast(full(1, bits.tile.dtype), to_torch(dtype))
    from_zero = copysign(smallest, towards)
    result = where(apply("eq", x, 0), from_zero, neighbour)
    result = where(apply("eq", x, towards), towards, result)
    is_nan = apply("or", apply("ne", x, x), apply("ne", towards, towards))
    return where(is_nan, float("nan"), result)


FLOAT_PARTS: dict[str, Rule] = {
    "signbit": signbit, "copysign": copysign, "ldexp": ldexp, "frexp": frexp,
    "nextafter": nextafter,
}  # fmt: skip
