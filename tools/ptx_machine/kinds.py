"""Types of operands: what bits mean as numbers, and which bits a number has.

Numbers of 16 bits and less are computed in wider floats; each type rounds once, to the nearest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

Lanes = npt.NDArray[Any]
WORDS = {1: np.bool_, 8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


@dataclass(frozen=True)
class Kind:
    """A type: its bits, and the two ways between bits and numbers."""

    name: str
    bits: int
    decode: Callable[[Lanes], Lanes]
    encode: Callable[[Lanes], Lanes]

    @property
    def is_float(self) -> bool:
        """Whether its numbers are floats."""
        return "f" in self.name or self.name[0] == "e"


def _viewed(name: str, number: Any) -> Kind:
    word = WORDS[np.dtype(number).itemsize * 8]

    def encode(values: Lanes) -> Lanes:
        return np.asarray(values).astype(number, copy=False).view(word)

    return Kind(name, np.dtype(number).itemsize * 8, lambda bits: bits.view(number), encode)


def _decode_bf16(bits: Lanes) -> Lanes:
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def _encode_bf16(values: Lanes) -> Lanes:
    single = _odd_single(np.asarray(values))
    bits = single.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(single), np.uint16(0x7FFF), rounded.astype(np.uint16))


def _odd_single(values: Lanes) -> Lanes:
    """fp64 to fp32 so that a second rounding to fewer bits is right: inexact ones become odd."""
    if values.dtype != np.float64:
        return values.astype(np.float32, copy=False)
    near = values.astype(np.float32)
    bits = near.view(np.uint32)
    with np.errstate(invalid="ignore"):
        is_above = np.abs(near.astype(np.float64)) > np.abs(values)
    below = np.where(is_above & np.isfinite(values), bits - np.uint32(1), bits)
    is_odd = np.isfinite(values) & (below.view(np.float32).astype(np.float64) != values)
    return (below | is_odd.astype(np.uint32)).view(np.float32)


def _encode_f16(values: Lanes) -> Lanes:
    half = np.asarray(values).astype(np.float16)
    return np.where(np.isnan(half), np.uint16(0x7FFF), half.view(np.uint16))


def _encode_f32(values: Lanes) -> Lanes:
    """All NaN are one, as the chips have it: where it comes from does not matter."""
    single = np.asarray(values).astype(np.float32, copy=False)
    return np.where(np.isnan(single), np.uint32(0x7FFFFFFF), single.view(np.uint32))


def _encode_f64(values: Lanes) -> Lanes:
    double = np.asarray(values).astype(np.float64, copy=False)
    return np.where(np.isnan(double), np.uint64(0xFFF8 << 48), double.view(np.uint64))


def _decode_tf32(bits: Lanes) -> Lanes:
    """Products do not look at the last 13 bits."""
    return (bits & np.uint32(0xFFFFE000)).view(np.float32)


@cache
def _float8_values(name: str) -> Lanes:
    """All 256 numbers of a type, by their bits."""
    exponent_bits, bias = (4, 7) if name == "e4m3" else (5, 15)
    mantissa_bits = 7 - exponent_bits
    codes = np.arange(256)
    exponent = codes >> mantissa_bits & ((1 << exponent_bits) - 1)
    mantissa = (codes & ((1 << mantissa_bits) - 1)) / (1 << mantissa_bits)
    is_normal = exponent > 0
    values = np.ldexp(mantissa + is_normal, np.maximum(exponent, 1) - bias)
    magnitude = codes & 0x7F
    if name == "e4m3":
        values = np.where(magnitude == 0x7F, np.nan, values)
    else:
        values = np.where(magnitude == 0x7C, np.inf, values)
        values = np.where(magnitude > 0x7C, np.nan, values)
    return np.where(codes >= 128, -values, values).astype(np.float32)


def _float8(name: str) -> Kind:
    table = _float8_values(name)
    largest = 0x7E if name == "e4m3" else 0x7B
    numbers = table[: largest + 1].astype(np.float64)
    middles = (numbers[1:] + numbers[:-1]) / 2

    def encode(values: Lanes) -> Lanes:
        """To the nearest, ties to even; beyond the largest number it is that (``satfinite``)."""
        exact = np.asarray(values).astype(np.float64)
        size = np.abs(exact)
        low, high = np.searchsorted(middles, size, "left"), np.searchsorted(middles, size, "right")
        code = np.where(low % 2 == 0, low, high)
        signed = code.astype(np.uint8) | (np.signbit(exact).astype(np.uint8) << np.uint8(7))
        return np.where(np.isnan(exact), np.uint8(0x7F), signed)

    return Kind(name, 8, lambda bits: table[bits], encode)


def _kinds() -> dict[str, Kind]:
    found = {"pred": Kind("pred", 1, lambda bits: bits, lambda bits: np.asarray(bits, np.bool_))}
    for bits in (8, 16, 32, 64):
        for letter, word in (
            ("b", f"u{bits // 8}"),
            ("u", f"u{bits // 8}"),
            ("s", f"i{bits // 8}"),
        ):
            found[f"{letter}{bits}"] = _viewed(f"{letter}{bits}", np.dtype(word).type)
    found["f16"] = Kind("f16", 16, lambda bits: bits.view(np.float16), _encode_f16)
    found["bf16"] = Kind("bf16", 16, _decode_bf16, _encode_bf16)
    found["f32"] = Kind("f32", 32, lambda bits: bits.view(np.float32), _encode_f32)
    found["f64"] = Kind("f64", 64, lambda bits: bits.view(np.float64), _encode_f64)
    found["tf32"] = Kind("tf32", 32, _decode_tf32, _encode_f32)
    found["e4m3"], found["e5m2"] = _float8("e4m3"), _float8("e5m2")
    return found


KINDS = _kinds()
PAIRS = {
    "f16x2": "f16", "bf16x2": "bf16", "e4m3x2": "e4m3", "e5m2x2": "e5m2", "s16x2": "s16",
    "u16x2": "u16",
}  # fmt: skip
"""Two numbers in one register, the first in the lower half."""


def halves(bits: Lanes, kind: Kind) -> tuple[Lanes, Lanes]:
    """The bits of both numbers of a register."""
    word = WORDS[kind.bits]
    width = bits.dtype.type(kind.bits)
    return bits.astype(word), (bits >> width).astype(word)


def joined(low: Lanes, high: Lanes, kind: Kind) -> Lanes:
    """The register of two numbers' bits."""
    word = WORDS[2 * kind.bits]
    return low.astype(word) | (high.astype(word) << word(kind.bits))


SMALLEST = {"f32": 2.0**-126, "bf16": 2.0**-126, "f16": 2.0**-14}
"""Normal numbers of the types whose subnormal ones may be flushed."""


def flushed(values: Lanes, kind: Kind) -> Lanes:
    """Subnormal numbers become zeros of their sign (``ftz``); those of 64 bits never do."""
    if kind.name not in SMALLEST:
        return values
    is_small = np.abs(values) < SMALLEST[kind.name]
    return np.where(is_small, np.copysign(np.zeros_like(values), values), values)
