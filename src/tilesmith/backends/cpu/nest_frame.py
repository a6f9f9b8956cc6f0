"""What the loops of one nest share: its lengths, its accumulators and the writer of its roots."""

from __future__ import annotations

from dataclasses import dataclass

from tilesmith.backends.cpu.elements import ElementEmitter
from tilesmith.backends.cpu.lanes import Strided
from tilesmith.backends.cpu.nests import Nest, Root
from tilesmith.backends.cpu.reductions import Accumulation, State
from tilesmith.backends.cpu.registers import INDEX, Register, lane_numbers
from tilesmith.backends.cpu.roots import RootWriter
from tilesmith.ir.ops.reduction import Reduce
from tilesmith.schedule.schedule import CpuOptions


@dataclass(frozen=True)
class Sum:
    """A reduction of a nest."""

    root: Root
    op: Reduce
    accumulation: Accumulation


class NestFrame:
    """One nest being emitted. States are lists with one accumulator per reduction."""

    def __init__(self, elements: ElementEmitter, nest: Nest, options: CpuOptions) -> None:
        self.elements = elements
        self.nest = nest
        self.width = elements.lanes.width
        self.lengths = [elements.length(dim) for dim in nest.layout.space]
        self.writer = RootWriter(elements, nest)
        self.sums = [
            Sum(root, op, Accumulation(op.reduction, op.x.tile.dtype, op.result.tile.dtype))
            for root, op in nest.reductions
        ]
        self.unroll = options.unroll if self.sums else 1
        self.may_stream = options.streaming_stores and not self.sums

    def values(self) -> list[Register]:
        """This step's element of every root."""
        return [self.elements.register(root.place) for root in self.nest.roots]

    def start(self) -> list[State]:
        """Nothing taken in yet."""
        return [item.accumulation.start(self.width) for item in self.sums]

    def take(
        self,
        values: list[Register],
        states: list[State],
        position: Register,
        mask: Register | None,
    ) -> list[State]:
        """The accumulators with one more element per lane."""
        by_root = dict(zip(self.nest.roots, values))
        return [
            item.accumulation.take(self.elements.b, state, by_root[item.root], position, mask)
            for item, state in zip(self.sums, states)
        ]

    def merge(self, ours: list[State], theirs: list[State]) -> list[State]:
        """Two sets of accumulators as one."""
        return [
            item.accumulation.merge(self.elements.b, x, y)
            for item, x, y in zip(self.sums, ours, theirs)
        ]

    def finish(self, states: list[State], *, across: bool) -> None:
        """Write the results; ``across`` combines the lanes first."""
        b = self.elements.b
        for item, state in zip(self.sums, states):
            total = item.accumulation.across(b, state) if across else state
            self.writer.write_result(item.root, item.op, item.accumulation.finish(b, total))

    def position(self, axis: int) -> Register:
        """Where the lanes are along a loop, as one index per lane."""
        b, lane = self.elements.b, self.elements.loops[axis]
        assert isinstance(lane, Strided)
        first = b.splat(lane.base, self.width)
        if lane.step.constant == 0:
            return first
        return b.binary("add", first, lane_numbers(INDEX, self.width))


def flatten(states: list[State]) -> list[Register]:
    """All registers of several accumulators, in order."""
    return [register for state in states for register in state]


def unflatten(flat: tuple[Register, ...], like: list[State]) -> list[State]:
    """Registers grouped as the accumulators that they came from."""
    found: list[State] = []
    start = 0
    for state in like:
        found.append(list(flat[start : start + len(state)]))
        start += len(state)
    return found


def is_known_multiple(length: Register, end: Register) -> bool:
    """Whether no vector is left over behind ``end``."""
    return length.constant is not None and length.constant == end.constant
