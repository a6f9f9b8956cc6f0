"""Writes LLVM IR text: instructions, structured loops and branches.

Values are in SSA form with phis at loop heads, so the code needs no optimisation passes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilesmith.backends.cpu.llvm.instructions import IndexArithmetic, MemoryInstructions
from tilesmith.backends.cpu.llvm.registers import LType, Register, index

Body = Callable[[Register, tuple[Register, ...]], Sequence[Register] | None]


class Builder(IndexArithmetic, MemoryInstructions):
    """Writes one function with loops and branches."""

    def loop(
        self,
        begin: Register,
        end: Register,
        step: Register,
        body: Body,
        carried: Sequence[Register] = (),
    ) -> tuple[Register, ...]:
        """``for i in range(begin, end, step)`` with a positive step.

        ``body`` takes the index and the carried values and gives the next ones; the result is
        what they are after the last iteration.
        """

        def condition(state: tuple[Register, ...]) -> Register:
            return self.compare("slt", state[0], end)

        def iteration(state: tuple[Register, ...]) -> list[Register]:
            following = body(state[0], state[1:]) or ()
            return [self.binary("add nsw", state[0], step), *following]

        return self.repeat(condition, iteration, (begin, *carried))[1:]

    def repeat(
        self,
        condition: Callable[[tuple[Register, ...]], Register],
        body: Callable[[tuple[Register, ...]], Sequence[Register]],
        carried: Sequence[Register],
    ) -> tuple[Register, ...]:
        """``while condition(state): state = body(state)``; gives the final state."""
        head, inside, after = map(self._fresh_label, ("head", "body", "after"))
        before = self._label
        self.emit(f"br label %{head}")
        self._begin(head)
        state = tuple(self.new(value.type, "p") for value in carried)
        place = len(self._lines)
        self.emit(f"br {condition(state)}, label %{inside}, label %{after}")
        self._begin(inside)
        following = body(state)
        last = self._label
        self.emit(f"br label %{head}")
        self._lines[place:place] = [
            f"  {phi.text} = phi {phi.type} [ {old.text}, %{before} ], [ {new.text}, %{last} ]"
            for phi, old, new in zip(state, carried, following, strict=True)
        ]
        self._begin(after)
        return state

    def if_else(
        self,
        condition: Register,
        then: Callable[[], Sequence[Register] | None],
        otherwise: Callable[[], Sequence[Register] | None] | None = None,
    ) -> tuple[Register, ...]:
        """A branch; gives the values of the branch taken."""
        yes, no, after = map(self._fresh_label, ("then", "else", "after"))
        self.emit(f"br {condition}, label %{yes}, label %{no}")
        ends: list[tuple[str, Sequence[Register]]] = []
        for name, make in ((yes, then), (no, otherwise)):
            self._begin(name)
            values = (make() if make is not None else None) or ()
            ends.append((self._label, values))
            self.emit(f"br label %{after}")
        self._begin(after)
        (first, ours), (second, theirs) = ends
        return tuple(
            self.value(x.type, f"phi {x.type} [ {x.text}, %{first} ], [ {y.text}, %{second} ]")
            for x, y in zip(ours, theirs, strict=True)
        )

    def count_up(self, count: Register, body: Callable[[Register], None]) -> None:
        """``for i in range(count)``."""
        self.loop(index(0), count, index(1), lambda position, _: body(position))

    def _fresh_label(self, stem: str) -> str:
        self._count += 1
        return f"{stem}{self._count}"

    def _begin(self, label: str) -> None:
        """A basic block."""
        self._lines.append(f"{label}:")
        self._label = label


_LANE_BITS = 128
_WIDEST_BITS = 64


def transpose(builder: Builder, rows: Sequence[Register]) -> list[Register]:
    """As many vectors as each has lanes; element ``j`` of row ``i`` moves to ``i`` of ``j``."""
    unit = min(_LANE_BITS // rows[0].type.bits, len(rows))
    result = list(rows)
    for start in range(0, len(rows), unit):
        result[start : start + unit] = _within_lanes(builder, rows[start : start + unit])
    for column in range(unit):
        result[column::unit] = _across_lanes(builder, result[column::unit], unit)
    return result


def _within_lanes(builder: Builder, rows: Sequence[Register]) -> list[Register]:
    """Transpose the square blocks that stand in each 128-bit lane, by interleaving."""
    unit, width, result = len(rows), 1, list(rows)
    while width < unit:
        merged: list[Register] = []
        for start in range(0, unit, 2 * width):
            middle = start + width
            for x, y in zip(result[start:middle], result[middle : middle + width], strict=True):
                merged += [_interleave(builder, x, y, (unit, width, high)) for high in (0, 1)]
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


def _across_lanes(builder: Builder, rows: Sequence[Register], unit: int) -> list[Register]:
    """Transpose whole lanes: each step separates the even from the odd ones."""
    if len(rows) == 1:
        return list(rows)
    lanes = range(2 * rows[0].lanes // unit)
    result: list[Register] = [rows[0]] * len(rows)
    for parity in (0, 1):
        pairs = zip(rows[::2], rows[1::2], strict=True)
        halves = [_pick_groups(builder, x, y, lanes[parity::2], unit) for x, y in pairs]
        result[parity::2] = _across_lanes(builder, halves, unit)
    return result


def _pick_groups(
    builder: Builder, x: Register, y: Register, groups: Sequence[int], width: int
) -> Register:
    """Groups of neighbours from two vectors, as wide elements: LLVM is quick with few of them."""
    joined = min(width, _WIDEST_BITS // x.type.bits)
    kind = x.type if joined == 1 else LType(f"i{x.type.bits * joined}", x.lanes // joined)
    parts = width // joined
    picked = [group * parts + i for group in groups for i in range(parts)]
    shuffled = builder.shuffle(bitcast(builder, x, kind), bitcast(builder, y, kind), picked)
    return bitcast(builder, shuffled, x.type)


def bitcast(builder: Builder, x: Register, kind: LType) -> Register:
    """The same bits in other lanes."""
    return x if x.type == kind else builder.value(kind, f"bitcast {x} to {kind}")
