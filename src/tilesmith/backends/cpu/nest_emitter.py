"""Emits nests: loops over a space, with lanes along one axis, computing all roots in one go."""

from __future__ import annotations

from collections.abc import Callable

from tilesmith.backends.cpu.columns import emit_columns
from tilesmith.backends.cpu.coordinates import Place, operands_at
from tilesmith.backends.cpu.elements import ElementEmitter
from tilesmith.backends.cpu.lanes import Strided
from tilesmith.backends.cpu.nest_frame import NestFrame
from tilesmith.backends.cpu.nests import Form, Nest
from tilesmith.backends.cpu.registers import Register, index
from tilesmith.backends.cpu.rows import emit_row
from tilesmith.ir.values import Value
from tilesmith.schedule.schedule import CpuOptions


class NestEmitter:
    """Emits nests with the elements of one function."""

    def __init__(self, elements: ElementEmitter, width: int, options: CpuOptions) -> None:
        self._elements = elements
        self.width = width
        self._options = options

    def emit(self, nest: Nest) -> None:
        """All loops of a nest."""
        is_plain = nest.layout.form is Form.ONE_BY_ONE or nest.layout.vector_axis < 0
        own = [root.place[0] for root in nest.roots if root.is_own_keep]
        with self._elements.nest(own, 1 if is_plain else self.width):
            self._elements.prefetched = nest.prefetched
            _OuterLoops(NestFrame(self._elements, nest, self._options)).emit()


class _OuterLoops:
    """The loops around the innermost ones."""

    def __init__(self, frame: NestFrame) -> None:
        self._frame = frame
        self._e = frame.elements
        self._nest = frame.nest

    def emit(self) -> None:
        """The loops from the outermost on."""
        layout = self._nest.layout
        inner = {layout.vector_axis, layout.reduced_axis}
        outer = [axis for axis in range(len(self._frame.lengths)) if axis not in inner]
        if layout.form is Form.COLUMNS:
            self._over(outer, lambda: emit_columns(self._frame))
        elif layout.vector_axis < 0:
            self._over(outer, self._one_element)
        else:
            self._over(outer, lambda: emit_row(self._frame))

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

        self._e.b.count_up(self._frame.lengths[axes[0]], step)

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

    def _one_element(self) -> None:
        """Without lanes: one element of every root, and reductions along axes of one element."""
        with self._e.scope():
            values = self._frame.values()
            self._frame.writer.write_all(values)
            states = self._frame.start()
            taken = self._frame.take(values, states, index(0), None)
            self._frame.finish(taken, across=True)
