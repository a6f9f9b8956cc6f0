"""Sums and products of 32 bits that are rounded once, in any direction.

A float of 64 bits stands for the exact number where its last bit is set whenever something was
lost (rounding to odd): rounding it to fewer bits is then rounding the exact one.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tools.ptx_machine.kinds import Lanes

DIRECTIONS = ("rz", "rm", "rp")


def odd_sum(x: Lanes, y: Lanes) -> Lanes:
    """The sum of two floats of 64 bits, rounded to odd."""
    found = x + y
    part = found - x
    lost = (x - (found - part)) + (y - part)
    is_short = np.isfinite(found) & (lost != 0)
    is_above = is_short & ((lost < 0) != (found < 0))
    bits = np.asarray(found).view(np.uint64) - is_above.astype(np.uint64)
    return (bits | is_short.astype(np.uint64)).view(np.float64)


def odd_fused(x: Lanes, y: Lanes, z: Lanes) -> Lanes:
    """A product and a sum of floats of 32 bits and less: the product is exact in 64."""
    return odd_sum(_wide(x) * _wide(y), _wide(z))


def rounded(values: Lanes, direction: str) -> Lanes:
    """Floats of 64 bits as such of 32, in a direction."""
    near = values.astype(np.float32)
    exact = near.astype(np.float64)
    size, is_above, is_below = np.float32(np.inf), exact > values, exact < values
    down, up = np.nextafter(near, -size), np.nextafter(near, size)
    if direction == "rz":
        is_above, is_below = is_above & (values > 0), is_below & (values < 0)
    is_above, is_below = is_above & (direction != "rp"), is_below & (direction != "rm")
    return np.where(is_above, down, np.where(is_below, up, near))


def directed(name: str, direction: str) -> Callable[..., Lanes]:
    """An instruction of 32 bits that rounds in this direction."""

    def compute(*values: Lanes) -> Lanes:
        first, second, *third = map(_wide, values)
        if name == "mul":
            return rounded(first * second, direction)
        x, y = (first * second, third[0]) if third else (first, second)
        y = -y if name == "sub" else y
        found = odd_sum(x, y)
        # Numbers that cancel leave -0 where the direction is down.
        is_plus = (x == 0) & (y == 0) & ~np.signbit(x) & ~np.signbit(y)
        if direction == "rm":
            found = np.where((found == 0) & ~is_plus, -0.0, found)
        return rounded(found, direction)

    return compute


def _wide(values: Lanes) -> Lanes:
    return np.asarray(values).astype(np.float64)
