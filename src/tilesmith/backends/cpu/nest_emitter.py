"""Emits nests: loops over a space, with lanes along one axis, computing all roots in one go.

A vector loop runs over whole vectors first; what is left is one masked step. Reductions have
several independent accumulators, so that additions need not wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilesmith.backends.cpu.atomics import emit_atomic
from tilesmith.backends.cpu.casts import to_memory
from tilesmith.backends.cpu.coordinates import Coords, Place, operands_at
from tilesmith.backends.cpu.elements import Buffer, ElementEmitter
from tilesmith.backends.cpu.lanes import Strided
from tilesmith.backends.cpu.memory_access import Lanes, write
from tilesmith.backends.cpu.nests import Form, Nest, Root
from tilesmith.backends.cpu.reductions import Accumulation, State
from tilesmith.backends.cpu.registers import INDEX, Register, index, lane_numbers
from tilesmith.ir.ops.memory import Atomic, Store
from tilesmith.ir.ops.reduction import Reduce
from tilesmith.ir.values import Value


@dataclass(frozen=True)
class _Sum:
    """A reduction of a nest."""

    root: Root
    op: Reduce
    accumulation: Accumulation


class NestEmitter:
    """Emits nests with the elements of one function."""

    def __init__(self, elements: ElementEmitter, width: int, unroll: int) -> None:
        self._elements = elements
        self._b = elements.b
        self._width = width
        self._unroll = unroll

    def emit(self, nest: Nest) -> None:
        """All loops of a nest."""
        is_plain = nest.layout.form is Form.ONE_BY_ONE or nest.layout.vector_axis < 0
        own = [root.place[0] for root in nest.roots if root.is_own_keep]
        with self._elements.nest(own, 1 if is_plain else self._width):
            _NestLoops(self._elements, nest, 1 if is_plain else self._unroll).emit()


class _NestLoops:
    """One nest being emitted."""

    def __init__(self, elements: ElementEmitter, nest: Nest, unroll: int) -> None:
        self._e = elements
        self._b = elements.b
        self._nest = nest
        self._layout = nest.layout
        self._width = elements.lanes.width
        self._lengths = [elements.length(dim) for dim in nest.layout.space]
        self._sums = [
            _Sum(root, op, Accumulation(op.reduction, op.x.tile.dtype, op.result.tile.dtype))
            for root, op in nest.reductions
        ]
        self._unroll = unroll if self._sums else 1

    def emit(self) -> None:
        """The loops from the outermost on."""
        inner = {self._layout.vector_axis, self._layout.reduced_axis}
        outer = [axis for axis in range(len(self._lengths)) if axis not in inner]
        if self._layout.form is Form.COLUMNS:
            self._over(outer, self._columns)
        elif self._layout.vector_axis < 0:
            self._over(outer, self._one_element)
        else:
            self._over(outer, self._row)

    def _over(self, axes: list[int], body: Callable[[], None]) -> None:
        """Nested loops over whole axes; what they fix is computed before ``body``."""
        self._hoist()
        if not axes:
            body()
            return

        def step(position: Register) -> None:
            self._e.loops[axes[0]] = Strided(position, index(0))
            with self._e.scope():
                self._over(axes[1:], body)
            del self._e.loops[axes[0]]

        self._b.count_up(self._lengths[axes[0]], step)

    def _hoist(self) -> None:
        """Compute now what the loops still to be opened do not change."""
        opened = frozenset(self._e.loops)
        for root in self._nest.roots:
            for place in root.places():
                self._hoist_place(place, opened)

    def _hoist_place(self, place: Place, opened: frozenset[int]) -> None:
        tiles = self._e.tiles
        if not place[0].tile.rank:
            return
        if tiles.axes(place) <= opened and not self._is_kept_here(place[0]):
            self._e.get(place)
        elif not tiles.is_stored(place[0]) or self._is_kept_here(place[0]):
            for operand in operands_at(tiles.definitions[place[0]], place[1]):
                self._hoist_place(operand, opened)

    def _is_kept_here(self, value: Value) -> bool:
        return any(root.is_own_keep and root.target is value for root in self._nest.roots)

    # --- rows -------------------------------------------------------------------------------------

    def _row(self) -> None:
        """The innermost loop, along the lanes."""
        length = self._lengths[self._layout.vector_axis]
        states = [s.accumulation.start(self._width) for s in self._sums]
        done = index(0)
        if self._unroll > 1:
            end = self._b.round_down(length, self._unroll * self._width)
            if end.constant != 0:
                states = self._unrolled(end, states)
                done = end
        end = self._b.round_down(length, self._width)
        if end.text != done.text:
            states = self._stepwise(done, end, states)
        if not self._is_known_multiple(length, end):
            states = self._tail(end, length, states)
        for item, state in zip(self._sums, states):
            total = item.accumulation.across(self._b, state)
            self._finish(item, item.accumulation.finish(self._b, total))

    @staticmethod
    def _is_known_multiple(length: Register, end: Register) -> bool:
        return length.constant is not None and length.constant == end.constant

    def _unrolled(self, end: Register, states: list[State]) -> list[State]:
        width, count = self._width, self._unroll

        def body(position: Register, flat: tuple[Register, ...]) -> list[Register]:
            copies = _split(flat, states * count)
            new: list[State] = []
            for number in range(count):
                part = copies[number * len(states) : (number + 1) * len(states)]
                start = self._b.add(position, index(number * width))
                new.extend(self._step(start, part, None))
            return _flat(new)

        step = index(width * count)
        found = self._b.loop(index(0), end, step, body, _flat(states * count))
        copies = _split(found, states * count)
        merged = copies[: len(states)]
        for number in range(1, count):
            part = copies[number * len(states) : (number + 1) * len(states)]
            merged = [
                item.accumulation.merge(self._b, x, y)
                for item, x, y in zip(self._sums, merged, part)
            ]
        return merged

    def _stepwise(self, begin: Register, end: Register, states: list[State]) -> list[State]:
        def body(position: Register, flat: tuple[Register, ...]) -> list[Register]:
            return _flat(self._step(position, _split(flat, states), None))

        found = self._b.loop(begin, end, index(self._width), body, _flat(states))
        return _split(found, states)

    def _tail(self, begin: Register, length: Register, states: list[State]) -> list[State]:
        """The last, shorter vector."""
        rest = self._b.subtract(length, begin)
        numbers = lane_numbers(INDEX, self._width)

        def masked() -> list[Register]:
            mask = self._b.compare("slt", numbers, self._b.splat(rest, self._width))
            return _flat(self._step(begin, states, mask))

        if rest.constant is not None:
            return _split(tuple(masked()), states)
        is_open = self._b.compare("sgt", rest, index(0))
        found = self._b.if_else(is_open, masked, lambda: _flat(states))
        return _split(found, states)

    def _step(self, position: Register, states: list[State], mask: Register | None) -> list[State]:
        """One vector of the innermost loop."""
        axis = self._layout.vector_axis
        self._e.loops[axis] = Strided(position, index(1))
        self._e.lanes = Lanes(self._width, mask)
        with self._e.scope():
            values = [self._e.register(root.place) for root in self._nest.roots]
            self._write_roots(values)
            found = self._take(values, states, axis, mask)
        self._e.lanes = Lanes(self._width)
        del self._e.loops[axis]
        return found

    def _take(
        self, values: list[Register], states: list[State], axis: int, mask: Register | None
    ) -> list[State]:
        by_root = dict(zip(self._nest.roots, values))
        found: list[State] = []
        for item, state in zip(self._sums, states):
            position = self._position(axis) if item.op.reduction.is_arg else index(0)
            x = by_root[item.root]
            found.append(item.accumulation.take(self._b, state, x, position, mask))
        return found

    def _position(self, axis: int) -> Register:
        lane = self._e.loops[axis]
        assert isinstance(lane, Strided)
        first = self._b.splat(lane.base, self._width)
        if lane.step.constant == 0:
            return first
        return self._b.binary("add", first, lane_numbers(INDEX, self._width))

    # --- columns ----------------------------------------------------------------------------------

    def _columns(self) -> None:
        """Vectors of columns outside, the reduced axis inside."""
        length = self._lengths[self._layout.vector_axis]
        width = self._width
        done = index(0)
        if self._unroll > 1:
            end = self._b.round_down(length, self._unroll * width)
            if end.constant != 0:
                self._column_loop(done, end, self._unroll)
                done = end
        end = self._b.round_down(length, width)
        if end.text != done.text:
            self._column_loop(done, end, 1)
        if not self._is_known_multiple(length, end):
            rest = self._b.subtract(length, end)
            limit = self._b.splat(rest, width)
            is_open = self._b.compare("sgt", rest, index(0))

            def tail() -> None:
                mask = self._b.compare("slt", lane_numbers(INDEX, width), limit)
                self._column(end, 1, mask)

            self._b.if_else(is_open, tail)

    def _column_loop(self, begin: Register, end: Register, count: int) -> None:
        def body(position: Register, _: tuple[Register, ...]) -> None:
            self._column(position, count, None)

        self._b.loop(begin, end, index(self._width * count), body)

    def _column(self, start: Register, count: int, mask: Register | None) -> None:
        starts = [self._b.add(start, index(n * self._width)) for n in range(count)]
        states = [s.accumulation.start(self._width) for s in self._sums] * count
        reduced = self._layout.reduced_axis

        def body(position: Register, flat: tuple[Register, ...]) -> list[Register]:
            self._e.loops[reduced] = Strided(position, index(0))
            old, new = _split(flat, states), list[State]()
            for number, first in enumerate(starts):
                part = old[number * len(self._sums) : (number + 1) * len(self._sums)]
                new.extend(self._column_step(first, part, mask))
            del self._e.loops[reduced]
            return _flat(new)

        length = self._lengths[reduced]
        found = self._b.loop(index(0), length, index(1), body, _flat(states))
        self._write_columns(starts, _split(found, states), mask)

    def _column_step(
        self, start: Register, states: list[State], mask: Register | None
    ) -> list[State]:
        self._e.loops[self._layout.vector_axis] = Strided(start, index(1))
        self._e.lanes = Lanes(self._width, mask)
        with self._e.scope():
            values = [self._e.register(root.place) for root in self._nest.roots]
            found = self._take(values, states, self._layout.reduced_axis, None)
        self._e.lanes = Lanes(self._width)
        del self._e.loops[self._layout.vector_axis]
        return found

    def _write_columns(
        self, starts: list[Register], states: list[State], mask: Register | None
    ) -> None:
        self._e.lanes = Lanes(self._width, mask)
        for number, start in enumerate(starts):
            self._e.loops[self._layout.vector_axis] = Strided(start, index(1))
            part = states[number * len(self._sums) : (number + 1) * len(self._sums)]
            for item, state in zip(self._sums, part):
                self._finish(item, item.accumulation.finish(self._b, state))
        del self._e.loops[self._layout.vector_axis]
        self._e.lanes = Lanes(self._width)

    # --- what roots do ----------------------------------------------------------------------------

    def _one_element(self) -> None:
        with self._e.scope():
            values = [self._e.register(root.place) for root in self._nest.roots]
            self._write_roots(values)
            for item, value in zip(self._nest.roots, values):
                self._reduce_single(item, value)

    def _reduce_single(self, root: Root, value: Register) -> None:
        """A reduction along an axis of one element."""
        for item in self._sums:
            if item.root is root:
                start = item.accumulation.start(1)
                state = item.accumulation.take(self._b, start, value, index(0), None)
                self._finish(item, item.accumulation.finish(self._b, state))

    def _write_roots(self, values: list[Register]) -> None:
        for root, value in zip(self._nest.roots, values):
            if root.is_keep:
                self._keep(root, value)
            elif isinstance(root.op, Store):
                self._store(root.op, root.place[1], value)
            elif isinstance(root.op, Atomic):
                self._atomic(root.op, root.place[1], value)

    def _keep(self, root: Root, value: Register) -> None:
        assert root.target is not None
        if root.target in self._e.spilled:
            store = self._e.spilled[root.target]
            # Where the store itself is in this nest and stores this very tile, it does the work.
            if store.value is not root.target or all(r.op is not store for r in self._nest.roots):
                self._store(store, root.place[1], value)
        else:
            self._write_buffer(self._e.buffers[root.target], root.place[1], value)

    def _write_buffer(self, buffer: Buffer, coords: Coords, value: Register) -> None:
        if buffer.dtype.is_bool:
            value = to_memory(self._b, buffer.dtype, value)
        position = self._e.buffer_position(buffer, coords)
        write(self._b, buffer.elements, position, value, self._e.lanes)

    def _store(self, op: Store, coords: Coords, value: Register) -> None:
        memory, position = self._e.address(op, coords)
        stored = to_memory(self._b, op.tensor.tensor.dtype, value)
        write(self._b, memory, position, stored, self._e.lanes, self._e.explicit_mask(op, coords))

    def _atomic(self, op: Atomic, coords: Coords, value: Register) -> None:
        emit_masked_atomic(self._e, op, coords, value)

    def _finish(self, item: _Sum, value: Register) -> None:
        result = item.op.result
        if not result.tile.rank:
            self._e.scalars[result] = value
            return
        coords = item.root.place[1]
        rest = coords[: item.op.axis] + coords[item.op.axis + 1 :]
        lanes = self._e.lanes
        if not value.type.is_vector:
            self._e.lanes = Lanes(1)
        self._write_buffer(self._e.buffers[result], rest, value)
        self._e.lanes = lanes


def emit_masked_atomic(
    elements: ElementEmitter, op: Atomic, coords: Coords, value: Register
) -> None:
    """One atomic update; what was there goes to the result, 0 where the mask does not hold."""
    b = elements.b
    memory, position = elements.address(op, coords)
    condition = elements.explicit_mask(op, coords)
    assert isinstance(position, Strided)
    pointer = b.offset(memory.pointer, position.base, memory.element)
    if condition is None:
        old = emit_atomic(b, op, pointer, value)
    else:
        zero = Register("0" if not value.type.is_float else "0.0", value.type)
        if value.type.element == "i1":
            zero = Register("false", value.type)
        (old,) = b.if_else(condition, lambda: [emit_atomic(b, op, pointer, value)], lambda: [zero])
    if not op.result.tile.rank:
        elements.scalars[op.result] = old
        return
    buffer = elements.buffers[op.result]
    stored = to_memory(b, buffer.dtype, old) if buffer.dtype.is_bool else old
    write(b, buffer.elements, elements.buffer_position(buffer, coords), stored, elements.lanes)


def _flat(states: list[State]) -> list[Register]:
    return [register for state in states for register in state]


def _split(flat: tuple[Register, ...], like: list[State]) -> list[State]:
    found: list[State] = []
    start = 0
    for state in like:
        found.append(list(flat[start : start + len(state)]))
        start += len(state)
    return found
