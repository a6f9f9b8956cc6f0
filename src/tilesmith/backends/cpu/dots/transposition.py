"""Transposes a square block of vectors by shuffles that each map to one instruction."""

from __future__ import annotations

from collections.abc import Sequence

from tilesmith.backends.cpu.builder import Builder
from tilesmith.backends.cpu.registers import LType, Register

_LANE_BITS = 128
_WIDEST_BITS = 64


def transpose(b: Builder, rows: Sequence[Register]) -> list[Register]:
    """As many vectors as each has lanes; element ``j`` of row ``i`` moves to ``i`` of ``j``."""
    unit = min(_LANE_BITS // rows[0].type.bits, len(rows))
    result = list(rows)
    for start in range(0, len(rows), unit):
        result[start : start + unit] = _within_lanes(b, rows[start : start + unit])
    for column in range(unit):
        result[column::unit] = _across_lanes(b, result[column::unit], unit)
    return result


def _within_lanes(b: Builder, rows: Sequence[Register]) -> list[Register]:
    """Transpose the square blocks that stand in each 128-bit lane, by interleaving."""
    unit = len(rows)
    result = list(rows)
    width = 1
    while width < unit:
        merged: list[Register] = []
        for start in range(0, unit, 2 * width):
            for x, y in zip(
                result[start : start + width],
                result[start + width : start + 2 * width],
                strict=True,
            ):
                merged += [_interleave(b, x, y, (unit, width, high)) for high in (0, 1)]
        result = merged
        width *= 2
    return result


def _interleave(b: Builder, x: Register, y: Register, pattern: tuple[int, int, int]) -> Register:
    """Alternate groups of ``width`` elements from one half of every lane of two vectors."""
    unit, width, high = pattern
    picked: list[int] = []
    for lane in range(0, x.lanes, unit):
        for group in range(lane + high * unit // 2, lane + (high + 1) * unit // 2, width):
            picked += [group // width, (x.lanes + group) // width]
    return _pick_groups(b, x, y, picked, width)


def _across_lanes(b: Builder, rows: Sequence[Register], unit: int) -> list[Register]:
    """Transpose whole lanes: each step separates the even from the odd ones."""
    if len(rows) == 1:
        return list(rows)
    lanes = range(2 * rows[0].lanes // unit)
    result: list[Register] = [rows[0]] * len(rows)
    for parity in (0, 1):
        pairs = zip(rows[::2], rows[1::2], strict=True)
        halves = [_pick_groups(b, x, y, lanes[parity::2], unit) for x, y in pairs]
        result[parity::2] = _across_lanes(b, halves, unit)
    return result


def _pick_groups(
    b: Builder, x: Register, y: Register, groups: Sequence[int], width: int
) -> Register:
    """Groups of neighbours from two vectors, as wide elements: LLVM is quick with few of them."""
    joined = min(width, _WIDEST_BITS // x.type.bits)
    kind = x.type if joined == 1 else LType(f"i{x.type.bits * joined}", x.lanes // joined)
    parts = width // joined
    picked = [group * parts + i for group in groups for i in range(parts)]
    return _as(b, b.shuffle(_as(b, x, kind), _as(b, y, kind), picked), x.type)


def _as(b: Builder, x: Register, kind: LType) -> Register:
    return x if x.type == kind else b.value(kind, f"bitcast {x} to {kind}")
