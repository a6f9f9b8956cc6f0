"""What a nest does with the elements it computes: stores, kept tiles, atomics, results."""

from __future__ import annotations

from tilesmith.backends.cpu.atomics import emit_atomic
from tilesmith.backends.cpu.buffers import Buffer
from tilesmith.backends.cpu.casts import to_memory
from tilesmith.backends.cpu.coordinates import Coords, access_places
from tilesmith.backends.cpu.elements import ElementEmitter
from tilesmith.backends.cpu.lanes import Strided
from tilesmith.backends.cpu.memory_access import Lanes, write
from tilesmith.backends.cpu.nests import Nest, Root
from tilesmith.backends.cpu.registers import Register, number
from tilesmith.ir.ops.memory import Atomic, Store
from tilesmith.ir.ops.reduction import Reduce


class RootWriter:
    """Writes what the roots of one nest make of their elements."""

    def __init__(self, elements: ElementEmitter, nest: Nest) -> None:
        self._e = elements
        self._b = elements.b
        self._nest = nest
        self.is_streaming = False
        """Whether whole vectors go past the caches; they must be aligned then."""

    def write_all(self, values: list[Register]) -> None:
        """One step's elements of all roots, in order."""
        for root, value in zip(self._nest.roots, values):
            if root.is_keep:
                self._keep(root, value)
            elif isinstance(root.op, Store):
                self._store(root.op, root.place[1], value)
            elif isinstance(root.op, Atomic):
                emit_masked_atomic(self._e, root.op, root.place[1], value)

    def write_result(self, root: Root, op: Reduce, value: Register) -> None:
        """The result of a reduction."""
        if not op.result.tile.rank:
            self._e.scalars[op.result] = value
            return
        coords = root.place[1]
        rest = coords[: op.axis] + coords[op.axis + 1 :]
        lanes = self._e.lanes
        if not value.type.is_vector:
            self._e.lanes = Lanes(1)
        self._write_buffer(self._e.buffers[op.result], rest, value)
        self._e.lanes = lanes

    def _keep(self, root: Root, value: Register) -> None:
        assert root.target is not None
        if root.target not in self._e.spilled:
            self._write_buffer(self._e.buffers[root.target], root.place[1], value)
            return
        store = self._e.spilled[root.target]
        # Where the store itself is in this nest and stores this very tile, it does the work.
        if store.value is not root.target or all(r.op is not store for r in self._nest.roots):
            self._store(store, root.place[1], value)

    def _write_buffer(self, buffer: Buffer, coords: Coords, value: Register) -> None:
        value = to_memory(self._b, buffer.dtype, value)
        position = self._e.buffer_position(buffer, coords)
        write(self._b, buffer.elements, position, value, self._e.lanes)

    def _store(self, op: Store, coords: Coords, value: Register) -> None:
        memory, position = self._e.address(op, coords)
        stored = to_memory(self._b, op.tensor.tensor.dtype, value)
        explicit = self._e.explicit_mask(op, coords)
        if self.is_streaming and self._e.lanes.tail is None and explicit is None:
            assert isinstance(position, Strided)
            pointer = self._b.offset(memory.pointer, position.base, memory.element)
            stored = self._b.splat(stored, self._e.lanes.width)
            self._b.store(stored, pointer, nontemporal=True)
        else:
            write(self._b, memory, position, stored, self._e.lanes, explicit)


def emit_masked_atomic(
    elements: ElementEmitter, op: Atomic, coords: Coords, value: Register
) -> None:
    """One atomic update; what was there goes to the result, 0 where the mask does not hold."""
    b = elements.b
    memory, position = elements.address(op, coords)
    condition = elements.explicit_mask(op, coords)
    assert isinstance(position, Strided)
    pointer = b.offset(memory.pointer, position.base, memory.element)
    operands = [value]
    if op.expected is not None:
        places = access_places(op, op.value.tile.shape, coords)
        operands.append(elements.register(places[len(op.indices)]))
    if condition is None:
        old = emit_atomic(b, op, pointer, *operands)
    else:
        zero = number(value.type.element, 0)
        update = lambda: [emit_atomic(b, op, pointer, *operands)]  # noqa: E731
        (old,) = b.if_else(condition, update, lambda: [zero])
    if not op.result.tile.rank:
        elements.scalars[op.result] = old
        return
    if op.result not in elements.buffers:
        return
    buffer = elements.buffers[op.result]
    stored = to_memory(b, buffer.dtype, old)
    write(b, buffer.elements, elements.buffer_position(buffer, coords), stored, elements.lanes)
