"""Accumulators of reductions: the value, for the position of an extreme also where it was seen.

Lanes of an accumulator note at which step they saw their extreme, in 32 bits where all positions
fit; the lane's own number is added when lanes are combined. The extreme itself is the accumulator's
value, so a maximum beside the position of the maximum costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilesmith.backends.cpu.llvm.builder import Builder
from tilesmith.backends.cpu.llvm.registers import (
    Register,
    lane_numbers,
    number,
    register_element,
)
from tilesmith.backends.cpu.loop_ir.statements import Nest, ReduceElement
from tilesmith.backends.cpu.math.casts import cast, round_to
from tilesmith.backends.cpu.math.scalar_functions import apply
from tilesmith.dtypes import I32, I64, DType
from tilesmith.ir.ops.reduction import ReduceKind

State = list[Register]


@dataclass(frozen=True)
class Accumulation:
    """One kind of reduction from one element type to another."""

    kind: ReduceKind
    source: DType
    result: DType
    places: DType = I64
    """What positions are noted as."""

    @staticmethod
    def over(
        kind: ReduceKind, source: DType, result: DType, length: Register | None
    ) -> Accumulation:
        """Of a reduction over so many elements, where that is known."""
        known = None if length is None else length.constant
        is_short = known is not None and known < 1 << 31
        return Accumulation(kind, source, result, I32 if is_short else I64)

    def is_value_of(self, other: Accumulation) -> bool:
        """Whether this extreme is what another accumulator of the same elements finds."""
        found = {ReduceKind.ARGMAX: ReduceKind.MAX, ReduceKind.ARGMIN: ReduceKind.MIN}
        return found.get(other.kind) is self.kind and other.dtype == self.dtype

    @property
    def dtype(self) -> DType:
        """The type accumulated in: sums of half types in fp32."""
        return self.kind.accumulator(self.source, self.result)

    def start(self, lanes: int) -> State:
        """Nothing taken in yet."""
        identity = self.kind.identity(self.dtype)
        state = [number(register_element(self.dtype), identity, lanes)]
        return [*state, number(self._place, 0, lanes)] if self.kind.is_arg else state

    @property
    def _place(self) -> str:
        return register_element(self.places)

    def take(
        self, builder: Builder, state: State, x: Register, position: Register, mask: Register | None
    ) -> State:
        """With one more element per lane, where the mask holds; the lanes begin at ``position``."""
        lanes = state[0].lanes
        x = builder.splat(cast(builder, self.source, self.dtype, x), lanes)
        if self.kind.is_arg:
            better = self._is_better(builder, x, state[0])
            position = builder.splat(cast(builder, I64, self.places, position), lanes)
            if mask is not None:
                better = builder.binary("and", better, mask)
            return [builder.select(better, x, state[0]), builder.select(better, position, state[1])]
        if mask is not None:
            x = builder.select(mask, x, self.start(lanes)[0])
        return [self._combine(builder, state[0], x)]

    def _combine(self, builder: Builder, x: Register, y: Register) -> Register:
        return apply(builder, self.kind.scalar_function, self.dtype.computed, [x, y])

    def _is_better(self, builder: Builder, x: Register, y: Register) -> Register:
        """Whether ``x`` beats ``y``; NaN beats numbers."""
        function = "gt" if self.kind is ReduceKind.ARGMAX else "lt"
        if not self.dtype.is_float:
            return apply(builder, function, self.dtype, [x, y])
        # Greater, or one of them is NaN, but not the one that was seen before.
        better = builder.compare(f"u{function}", x, y)
        return builder.binary("and", better, builder.compare("ord", y, y))

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
        if self.kind.is_arg and lanes > 1:
            state = [state[0], builder.binary("add", state[1], lane_numbers(self._place, lanes))]
        while lanes > 1:
            lanes //= 2
            halves = range(lanes), range(lanes, 2 * lanes)
            low, high = ([_pick(builder, x, half) for x in state] for half in halves)
            state = self.merge(builder, low, high)
        return state

    def finish(self, builder: Builder, state: State) -> Register:
        """The result in its own type."""
        if self.kind.is_arg:
            return cast(builder, self.places, self.result, state[1])
        if self.result.is_low_precision_float and self.result == self.source:
            return round_to(builder, self.result, state[0])
        return cast(builder, self.dtype, self.result, state[0])


def accumulations_of(
    nest: Nest, lengths: list[Register]
) -> tuple[dict[int, Accumulation], dict[int, tuple[int, Accumulation]]]:
    """The reductions of a nest by their place among its writes.

    Extremes that the reduction to their position finds come apart, with the number of that one.
    """
    layout, writes = nest.layout, nest.writes
    along = layout.reduced_axis if layout.reduced_axis >= 0 else layout.vector_axis
    length = lengths[along] if along >= 0 else None
    sums = {
        number: Accumulation.over(write.kind, write.value.dtype, write.dtype, length)
        for number, write in enumerate(writes)
        if isinstance(write, ReduceElement)
    }
    found = {
        number: (other, item)
        for number, item in sums.items()
        for other, position in sums.items()
        if item.is_value_of(position) and writes[other].value is writes[number].value
    }
    return {number: item for number, item in sums.items() if number not in found}, found


def _negated(builder: Builder, x: Register) -> Register:
    return builder.binary("xor", x, number("i1", 1, x.lanes))


def _pick(builder: Builder, x: Register, lanes: range) -> Register:
    return builder.extract(x, lanes[0]) if len(lanes) == 1 else builder.shuffle(x, x, lanes)
