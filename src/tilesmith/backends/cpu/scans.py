"""Emits scans: element after element along the axis, so that results are those of a plain loop."""

from __future__ import annotations

from tilesmith.backends.cpu.casts import round_to, to_memory
from tilesmith.backends.cpu.coordinates import own_coords
from tilesmith.backends.cpu.elements import ElementEmitter
from tilesmith.backends.cpu.lanes import Strided
from tilesmith.backends.cpu.memory_access import write
from tilesmith.backends.cpu.reductions import Accumulation
from tilesmith.backends.cpu.registers import Register, index
from tilesmith.ir.ops.reduction import Scan


def emit_scan(elements: ElementEmitter, op: Scan) -> None:
    """All running combinations of a tile into the buffer of the result."""
    shape = op.x.tile.shape
    scanned = sum(not dim.is_one for dim in shape[: op.axis])
    wide = [axis for axis, dim in enumerate(shape) if not dim.is_one]
    with elements.nest((), 1):
        lengths = {n: elements.length(shape[axis]) for n, axis in enumerate(wide)}
        is_single = shape[op.axis].is_one
        outer = [n for n in lengths if is_single or n != scanned]
        _Scanner(elements, op, lengths).over(outer, None if is_single else scanned)


class _Scanner:
    def __init__(self, elements: ElementEmitter, op: Scan, lengths: dict[int, Register]) -> None:
        self._e = elements
        self._b = elements.b
        self._op = op
        self._place = (op.x, own_coords(op.x.tile.shape))
        self._lengths = lengths
        dtype = op.x.tile.dtype
        self._kind = Accumulation(op.reduction, dtype, dtype)

    def over(self, axes: list[int], scanned: int | None) -> None:
        """Loops over the other axes, then the scan itself."""
        if not axes:
            self._line(scanned)
            return

        def step(position: Register) -> None:
            self._e.loops[axes[0]] = Strided(position, index(0))
            with self._e.scope():
                self.over(axes[1:], scanned)

        self._b.count_up(self._lengths[axes[0]], step)

    def _line(self, scanned: int | None) -> None:
        start = self._kind.start(1)
        if scanned is None:
            self._element(tuple(start))
            return
        length = self._lengths[scanned]

        def step(position: Register, state: tuple[Register, ...]) -> list[Register]:
            if self._op.reverse:
                last = self._b.subtract(length, index(1))
                position = self._b.subtract(last, position)
            self._e.loops[scanned] = Strided(position, index(0))
            with self._e.scope():
                return self._element(state)

        self._b.loop(index(0), length, index(1), step, start)

    def _element(self, state: tuple[Register, ...]) -> list[Register]:
        x = self._e.register(self._place)
        new = self._kind.take(self._b, list(state), x, index(0), None)
        buffer = self._e.buffers[self._op.result]
        dtype = self._op.x.tile.dtype
        value = round_to(self._b, dtype, new[0]) if dtype.is_low_precision_float else new[0]
        position = self._e.buffer_position(buffer, self._place[1])
        stored = to_memory(self._b, buffer.dtype, value)
        write(self._b, buffer.elements, position, stored, self._e.lanes)
        return new
