"""Collects the facts of loads, stores and atomics from the IR."""

from __future__ import annotations

from math import prod

from tilesmith.analysis.effects import alias_group, exchanged_memory, is_elsewhere
from tilesmith.ir.axis_roles import Along
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import If, Loop, While
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.ir.types import Shape
from tilesmith.ir.values import Value
from tilesmith.schedule.facts.accesses import AccessFact, Purpose
from tilesmith.schedule.facts.dataflow import Dataflow
from tilesmith.schedule.facts.extents import Extents
from tilesmith.schedule.facts.index_patterns import (
    GATHER,
    IndexPattern,
    access_text,
    classify_index,
    find_loop_axis,
)
from tilesmith.schedule.facts.outline import Access, Site
from tilesmith.schedule.facts.work import Counter


class AccessCollector:
    """Makes the facts of one function's accesses."""

    def __init__(self, extents: Extents, counter: Counter, flow: Dataflow) -> None:
        self._extents = extents
        self._structure = extents.structure
        self._counter = counter
        self._flow = flow
        loads = [op for op in self._structure.accesses if isinstance(op, Load) and not op.eviction]
        self._exchanged = exchanged_memory(self._structure.function)
        self._eviction_slots = {id(op): position for position, op in enumerate(loads)}

    def collect(self) -> tuple[AccessFact, ...]:
        """Facts of all loads and stores by slot, then of all atomics."""
        structure = self._structure
        wanted = {id(op) for op in (*structure.accesses, *structure.atomics)}
        facts = [
            self._fact(site, site.op)
            for site in structure.sites
            if id(site.op) in wanted and isinstance(site.op, (Load, Store, Atomic))
        ]
        moves = sorted((f for f in facts if f.kind != Atomic.name), key=lambda fact: fact.slot)
        atomics = sorted((f for f in facts if f.kind == Atomic.name), key=lambda fact: fact.slot)
        return (*moves, *atomics)

    def _fact(self, site: Site, op: Access) -> AccessFact:
        shape, tensor = _shape_of(op), op.tensor.tensor
        patterns = tuple(classify_index(self._structure, index) for index in op.indices)
        if is_elsewhere(op):
            patterns = tuple(GATHER for _ in patterns)
        return AccessFact(
            slot=op.slot,
            kind=op.name,
            tensor=op.tensor.name,
            dtype=tensor.dtype,
            shape=shape,
            strides=tensor.strides,
            patterns=patterns,
            has_mask=op.mask is not None,
            reuse=self._reuse(site, op.indices),
            known_strides=tuple(self._extents.of_size(s).count for s in tensor.strides),
            text=access_text(self._structure, op),
            moved=self._counter.elements(site, shape),
            programs=self._counter.programs(site),
            distinct=self._distinct(site, op, patterns),
            tensor_elements=None if is_elsewhere(op) else self._tensor_elements(op.tensor),
            purpose=find_purpose(self._flow, op.result) if isinstance(op, Load) else Purpose(),
            eviction_slot=self._eviction_slots.get(id(op)),
            is_exchanged=not isinstance(op, Atomic) and alias_group(op.tensor) in self._exchanged,
            loc=op.loc,
        )

    def _reuse(self, site: Site, indices: tuple[Value, ...]) -> int:
        used = frozenset[Value]().union(*map(self._extents.positions_behind, indices))
        absent = [
            self._extents.of_loop(axis).count or 1
            for loop in site.loops
            for axis in self._structure.axes_of(loop)
            if axis.index not in used
        ]
        return prod(absent)

    def _tensor_elements(self, tensor: Value) -> int | None:
        """Elements in memory: an expanded dimension counts once."""
        extents = zip(tensor.tensor.shape, tensor.tensor.strides)
        counts = [self._extents.of_size(size).count for size, stride in extents if stride != 0]
        known = [count for count in counts if count is not None]
        return prod(known) if len(known) == len(counts) else None

    def _distinct(self, site: Site, op: Access, patterns: tuple[IndexPattern, ...]) -> int | None:
        if is_elsewhere(op):
            count = self._counter.elements(site, _shape_of(op)).at()
            return None if count is None else int(count)
        total = 1
        for position, stride in enumerate(op.tensor.tensor.strides):
            reach = 1 if stride == 0 else self._reach(site, op, position, patterns[position])
            if reach is None:
                return None
            total *= reach
        return total

    def _reach(self, site: Site, op: Access, position: int, pattern: IndexPattern) -> int | None:
        """Positions of one tensor dimension that are accessed, at most its size."""
        whole = self._extents.of_size(op.tensor.tensor.shape[position]).count
        reach = self._positions(site, op.indices[position], pattern)
        if reach is None or whole is None:
            return whole if reach is None else reach
        return min(reach, whole)

    def _positions(self, site: Site, index: Value, pattern: IndexPattern) -> int | None:
        if pattern.kind in ("tile", "range") and not pattern.is_shifted:
            return self._extents.reach(pattern.dim)
        if self._structure.is_data_dependent(index):
            count = self._counter.elements(site, index.tile.shape).at()
            return None if count is None else max(1, int(count))
        # One for each combination of the lanes and of the loop positions that it is made of.
        lanes = [self._extents.of_dim(dim).count for dim in index.tile.shape]
        loops = [
            self._extents.of_loop(axis).count
            for root in self._structure.roots(index)
            if (axis := find_loop_axis(self._structure, root)) is not None
            and not any(axis.block in dim.symbols for dim in index.tile.shape)
        ]
        counts = [count for count in (*lanes, *loops) if count is not None]
        return prod(counts) if len(counts) == len(lanes) + len(loops) else None


def _shape_of(op: Access) -> Shape:
    return (op.result if isinstance(op, Load) else op.value).tile.shape


def find_purpose(flow: Dataflow, value: Value) -> Purpose:
    """What a loaded tile is used for."""
    uses = list(flow.uses(value))
    sides = [_side(op, used) for op, used in uses if isinstance(op, Dot)]
    reduced = [used.tile.shape[op.form.axis(op)] for op, used in uses if isinstance(op.form, Along)]
    stores = [op for op, used in uses if isinstance(op, (Store, Atomic)) and op.value is used]
    return Purpose(
        sides=tuple(dict.fromkeys(sides)),
        reduced=tuple(reduced),
        num_stores=len(stores),
        is_index=any(_is_position(op, used) for op, used in uses),
    )


def _side(dot: Dot, used: Value) -> str:
    return "lhs" if used is dot.lhs else "rhs" if used is dot.rhs else "acc"


def _is_position(op: Operation, used: Value) -> bool:
    if isinstance(op, (Load, Store, Atomic)):
        return used in op.indices
    return isinstance(op, (Loop, If, While))
