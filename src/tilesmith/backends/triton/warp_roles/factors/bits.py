"""Numbers in bf16, as Python has them."""

from __future__ import annotations

from math import frexp, ldexp
from struct import pack, unpack

LARGEST = 3.4028235e38
"""In fp32."""
BITS = 8
"""Of a number in bf16, the first one included."""
NEIGHBOURS = (0, 1, -1, 2, -2, 3, -3)
"""Numbers to try around the nearest one, as steps."""


def significands() -> range:
    """All that numbers in bf16 have besides sign and exponent."""
    return range(1 << (BITS - 1), 1 << BITS)


def in_bf16(number: float) -> float:
    """Rounded to the nearest number of eight bits, ties to even ones, as Python rounds."""
    fraction, exponent = frexp(number)
    return ldexp(round(fraction * 2**BITS), exponent - BITS)


def to_bits(number: float) -> int:
    """The bits of a number in fp32."""
    return unpack("I", pack("f", number))[0]


def from_bits(bits: int) -> float:
    """The number in fp32 that has these bits."""
    return unpack("f", pack("I", bits))[0]


def in_single(number: float) -> float:
    """Rounded to fp32, if it has such a number."""
    return number if abs(number) >= LARGEST else from_bits(to_bits(number))


def in_both_halves(number: float) -> int:
    """The bits of a number in bf16, in both halves of a register."""
    half = to_bits(number) >> 16
    return half << 16 | half
