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

    def start(self, lanes: int) -> State:
        """Nothing taken in yet."""
        identity = self.kind.identity(self.dtype)
        state = [number(register_element(self.dtype), identity, lanes)]
        return [*state, number(INDEX, 0, lanes)] if self.kind.is_arg else state

    def take(
        self, builder: Builder, state: State, x: Register, position: Register, mask: Register | None
    ) -> State:
        """With one more element per lane, where the mask holds."""
        lanes = state[0].lanes
        x = builder.splat(cast(builder, self.source, self.dtype, x), lanes)
        if self.kind.is_arg:
            position, better = builder.splat(position, lanes), self._is_better(builder, x, state[0])
            if mask is not None:
                better = builder.binary("and", better, mask)
            return [builder.select(better, x, state[0]), builder.select(better, position, state[1])]
        if mask is not None:
            x = builder.select(mask, x, self.start(lanes)[0])
        return [self._combine(builder, state[0], x)]

    def _combine(self, builder: Builder, x: Register, y: Register) -> Register:
        dtype = F32 if self.dtype.is_low_precision_float else self.dtype
        return apply(builder, _FUNCTIONS[self.kind], dtype, [x, y])

    def _is_better(self, builder: Builder, x: Register, y: Register) -> Register:
        """Whether ``x`` beats ``y``; NaN beats numbers."""
        function = "gt" if self.kind is ReduceKind.ARGMAX else "lt"
        better = apply(builder, function, self.dtype, [x, y])
        if not self.dtype.is_float:
            return better
        is_new = builder.binary("and", builder.compare("uno", x, x), builder.compare("ord", y, y))
        return builder.binary("or", better, is_new)

    def merge(self, builder: Builder, x: State, y: State) -> State:
        """Two accumulators as one."""
        if not self.kind.is_arg:
            return [self._combine(builder, x[0], y[0])]
        better = self._is_better(builder, y[0], x[0])
        worse = self._is_better(builder, x[0], y[0])
        tie = builder.binary("and", _negated(builder, better), _negated(builder, worse))
        earlier = builder.binary("and", tie, builder.compare("slt", y[1], x[1]))
        wins = builder.binary("or", better, earlier)
        return [builder.select(wins, y[0], x[0]), builder.select(wins, y[1], x[1])]

    def across(self, builder: Builder, state: State) -> State:
        """The lanes of an accumulator combined into one."""
        lanes = state[0].lanes
        while lanes > 1:
            lanes //= 2
            halves = range(lanes), range(lanes, 2 * lanes)
            low, high = ([_pick(builder, x, half) for x in state] for half in halves)
            state = self.merge(builder, low, high)
        return state

    def finish(self, builder: Builder, state: State) -> Register:
        """The result in its own type."""
        if self.kind.is_arg:
            return cast(builder, I64, self.result, state[1])
        if self.result.is_low_precision_float and self.result == self.source:
            return round_to(builder, self.result, state[0])
        return cast(builder, self.dtype, self.result, state[0])


def _negated(builder: Builder, x: Register) -> Register:
    return builder.binary("xor", x, number("i1", 1, x.lanes))


def _pick(builder: Builder, x: Register, lanes: range) -> Register:
    return builder.extract(x, lanes[0]) if len(lanes) == 1 else builder.shuffle(x, x, lanes)
