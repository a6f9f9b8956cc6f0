"""Accumulators of reductions: how they begin, take in elements, merge and end.

An accumulator is a list of registers: the value, and for arg reductions also its position.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilesmith.backends.cpu.llvm.builder import Builder
from tilesmith.backends.cpu.llvm.registers import INDEX, Register, number, register_element
from tilesmith.backends.cpu.math.casts import cast, round_to
from tilesmith.backends.cpu.math.scalar_functions import apply
from tilesmith.dtypes import BOOL, F32, I64, DType
from tilesmith.ir.ops.reduction import ReduceKind

_FUNCTIONS = {
    ReduceKind.SUM: "add",
    ReduceKind.PROD: "mul",
    ReduceKind.MAX: "maximum",
    ReduceKind.MIN: "minimum",
    ReduceKind.ANY: "or",
    ReduceKind.ALL: "and",
}
State = list[Register]


@dataclass(frozen=True)
class Accumulation:
    """One kind of reduction from one element type to another."""

    kind: ReduceKind
    source: DType
    result: DType

    @property
    def dtype(self) -> DType:
        """The type accumulated in: sums of half types in fp32."""
        if self.kind in (ReduceKind.ANY, ReduceKind.ALL):
            return BOOL
        if self.kind in (ReduceKind.SUM, ReduceKind.PROD):
            return F32 if self.result.is_low_precision_float else self.result
        return self.source

    @property
    def _is_arg(self) -> bool:
        return self.kind.is_arg

    def start(self, lanes: int) -> State:
        """Nothing taken in yet."""
        identity = self.kind.identity(self.dtype)
        state = [number(register_element(self.dtype), identity, lanes)]
        return [*state, number(INDEX, 0, lanes)] if self._is_arg else state

    def take(
        self, b: Builder, state: State, x: Register, position: Register, mask: Register | None
    ) -> State:
        """With one more element per lane, where the mask holds."""
        lanes = state[0].lanes
        x = b.splat(cast(b, self.source, self.dtype, x), lanes)
        if self._is_arg:
            return self._take_position(b, state, x, b.splat(position, lanes), mask)
        if mask is not None:
            x = b.select(mask, x, self.start(lanes)[0])
        return [self._combine(b, state[0], x)]

    def _combine(self, b: Builder, x: Register, y: Register) -> Register:
        dtype = F32 if self.dtype.is_low_precision_float else self.dtype
        return apply(b, _FUNCTIONS[self.kind], dtype, [x, y])

    def _take_position(
        self, b: Builder, state: State, x: Register, position: Register, mask: Register | None
    ) -> State:
        better = self._is_better(b, x, state[0])
        if mask is not None:
            better = b.binary("and", better, mask)
        return [b.select(better, x, state[0]), b.select(better, position, state[1])]

    def _is_better(self, b: Builder, x: Register, y: Register) -> Register:
        """Whether ``x`` beats ``y``; NaN beats numbers."""
        function = "gt" if self.kind is ReduceKind.ARGMAX else "lt"
        better = apply(b, function, self.dtype, [x, y])
        if not self.dtype.is_float:
            return better
        is_new = b.binary("and", b.compare("uno", x, x), b.compare("ord", y, y))
        return b.binary("or", better, is_new)

    def merge(self, b: Builder, x: State, y: State) -> State:
        """Two accumulators as one."""
        if not self._is_arg:
            return [self._combine(b, x[0], y[0])]
        better = self._is_better(b, y[0], x[0])
        worse = self._is_better(b, x[0], y[0])
        tie = b.binary("and", _negated(b, better), _negated(b, worse))
        earlier = b.binary("and", tie, b.compare("slt", y[1], x[1]))
        wins = b.binary("or", better, earlier)
        return [b.select(wins, y[0], x[0]), b.select(wins, y[1], x[1])]

    def across(self, b: Builder, state: State) -> State:
        """The lanes of an accumulator combined into one."""
        lanes = state[0].lanes
        while lanes > 1:
            lanes //= 2
            halves = range(lanes), range(lanes, 2 * lanes)
            low, high = ([_pick(b, x, half) for x in state] for half in halves)
            state = self.merge(b, low, high)
        return state

    def finish(self, b: Builder, state: State) -> Register:
        """The result in its own type."""
        if self._is_arg:
            return cast(b, I64, self.result, state[1])
        if self.result.is_low_precision_float and self.result == self.source:
            return round_to(b, self.result, state[0])
        return cast(b, self.dtype, self.result, state[0])


def _negated(b: Builder, x: Register) -> Register:
    return b.binary("xor", x, number("i1", 1, x.lanes))


def _pick(b: Builder, x: Register, lanes: range) -> Register:
    return b.extract(x, lanes[0]) if len(lanes) == 1 else b.shuffle(x, x, lanes)
