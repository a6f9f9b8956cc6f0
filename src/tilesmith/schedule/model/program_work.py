"""What one program does, as a function of block sizes: products, accesses, arithmetic, by loop.

A function is read once into templates, products with where their operands come from; a Config turns
them into numbers. Nothing here knows how fast a device is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from tilesmith.ir.axis_roles import Along
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import Grid, GridBarrier, Loop
from tilesmith.ir.ops.elementwise import Elementwise
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.ir.types import Dim, Shape, Value
from tilesmith.schedule.facts.accesses import AccessFact
from tilesmith.schedule.facts.dataflow import is_whole_view
from tilesmith.schedule.facts.extents import Extents
from tilesmith.schedule.facts.fact_set import Facts
from tilesmith.schedule.facts.outline import FunctionOutline, LoopAxis, counted_loops
from tilesmith.schedule.facts.work import is_arithmetic
from tilesmith.schedule.model.end_lengths import length_under
from tilesmith.schedule.space.sizes import UNKNOWN_EXTENT, TileSizes


@dataclass(frozen=True)
class Operand:
    """One side of a product: where it comes from."""

    value: Value
    load: Load | None
    loop: Loop | None
    """The sequential loop of the load."""
    width: int = 1
    """Elements that a thread can load at once, as far as strides tell."""
    along: Dim | None = None
    """The axis that runs along memory."""


@dataclass(frozen=True)
class Product:
    """One matrix product with its operands."""

    dot: Dot
    loop: Loop | None
    lhs: Operand
    rhs: Operand

    @property
    def is_exact(self) -> bool:
        """Whether it is computed without matrix units."""
        bits = self.dot.lhs.tile.dtype.bits
        return bits > 32 or (bits == 32 and self.dot.precision == "ieee")


class Products:
    """All products of one function."""

    def __init__(self, outline: FunctionOutline, accesses: Iterable[AccessFact]) -> None:
        self._outline = outline
        self._facts = {fact.slot: fact for fact in accesses if fact.kind == "load"}
        self._sites = {id(site.op): site for site in outline.sites}
        self.products = tuple(
            Product(dot, site.innermost, self._operand(dot.lhs), self._operand(dot.rhs))
            for site in outline.sites
            if isinstance(dot := site.op, Dot)
        )
        self.operands = {
            value
            for product in self.products
            for operand in (product.lhs, product.rhs)
            if operand.load is not None
            for value in self._chain(operand.value)
        }
        """Values on the way from a load to a matrix product."""

    def _operand(self, value: Value) -> Operand:
        *_, last = self._chain(value)
        load = self._outline.definitions.get(last)
        if not isinstance(load, Load):
            return Operand(value, None, None)
        loop, fact = self._sites[id(load)].innermost, self._facts[load.slot]
        # Triton compiles for the strides of a launch: what may arrive ahead needs its room.
        return Operand(value, load, loop, fact.widest_vector, fact.contiguous_dim)

    def _chain(self, value: Value) -> list[Value]:
        chain = [value]
        op = self._outline.definitions.get(value)
        while is_whole_view(op):
            chain.extend(op.operand_values())
            op = self._outline.definitions.get(chain[-1])
        return chain


Path = tuple[Loop, ...]


@dataclass(frozen=True)
class Access:
    """One load, store or atomic."""

    fact: AccessFact
    is_operand: bool
    """Whether a matrix product reads what is loaded."""
    grid_axes: frozenset[int]
    """Axes of the grid that decide where it goes."""
    loops: Path

    @property
    def is_load(self) -> bool:
        """Whether it only reads."""
        return self.fact.kind == "load"


@dataclass(frozen=True)
class Combination:
    """A reduction, scan or sort of a tile along one axis."""

    shape: Shape
    axis: Dim


@dataclass(frozen=True)
class Phase:
    """The straight part of one loop's body (or of the program)."""

    path: Path
    products: tuple[Product, ...]
    accesses: tuple[Access, ...]
    combinations: tuple[Combination, ...]
    lanes: tuple[tuple[Shape, int], ...]
    """Elementwise operations: how many on tiles of each shape."""
    specials: tuple[tuple[Shape, int], ...]
    """exp and the like."""


@dataclass(frozen=True)
class GridWork:
    """One top-level loop."""

    grid: Grid
    axes: tuple[LoopAxis, ...]
    phases: tuple[Phase, ...]

    @property
    def accesses(self) -> list[Access]:
        """All of its accesses."""
        return [access for phase in self.phases for access in phase.accesses]


class WorkModel:
    """Templates of one function, and the numbers they give under a Config's sizes."""

    def __init__(self, outline: FunctionOutline, facts: Facts, products: Products) -> None:
        self._outline = outline
        self._extents = Extents(outline)
        self._facts = {(f.kind == "atomic", f.slot): f for f in facts.accesses}
        self._products = {id(p.dot): p for p in products.products}
        self._operands = products.operands
        self._lengths = {
            id(axis.index): self._extents.of_loop(axis)
            for axes in outline.axes.values()
            for axis in axes
        }
        self.grids = tuple(self._grid_work(grid) for grid in outline.grids)
        self.num_exchanges = len(outline.group_barriers)
        self.num_barriers = len(outline.ops(GridBarrier))
        self.num_cleared = sum(p.is_zeroed for p in outline.function.parameters)
        self._counted = counted_loops(outline)
        self._passes = self._count_passes()
        self._whole: dict[Dim, int | None] = {}

    def programs(self, work: GridWork, sizes: TileSizes) -> list[int]:
        """Programs along each axis of a grid."""
        return [self._tiles(axis, sizes) for axis in work.axes]

    def trips(self, path: Path, sizes: TileSizes) -> float:
        """How often an average program runs through the innermost of nested loops."""
        total = 1.0
        for loop in path:
            for axis in self._outline.axes_of(loop):
                total *= self._tiles(axis, sizes) * self._lengths[id(axis.index)].share
        return max(total * self.share(path, sizes), 1e-3)

    def share(self, path: Path, sizes: TileSizes) -> float:
        """Of programs, those that come to a loop: one of many where they are counted first."""
        share = 1.0
        if not self._counted:
            return share
        for block in (self._counted[id(loop)] for loop in path if id(loop) in self._counted):
            share /= -(-(self.extent(Dim.of(block)) or 1) // sizes.symbols.get(block, 1))
        return share

    def chunks(self, shape: Shape, sizes: TileSizes) -> int:
        """Pieces in which a tile with rolled axes is walked."""
        if not sizes.rolled:
            return 1
        rolled = [dim for dim in shape if dim in sizes.rolled]
        return prod(-(-(self.extent(dim) or 1) // sizes.rolled[dim]) for dim in rolled)

    def passes(self, shape: Shape, sizes: TileSizes) -> int:
        """How often a load with rolled axes is repeated: for each reduction, and for the store."""
        if not sizes.rolled:
            return 1
        return max((self._passes.get(dim, 1) for dim in shape if dim in sizes.rolled), default=1)

    def used_elements(self, shape: Shape, sizes: TileSizes) -> int:
        """Elements of a tile that exist; what is padded is not moved."""
        return prod(min(size := sizes.size(dim), self.extent(dim) or size) for dim in shape)

    def extent(self, dim: Dim) -> int | None:
        """How far a dimension ranges in all."""
        if dim not in self._whole:
            self._whole[dim] = self._outline.extent(dim)
        return self._whole[dim]

    def _tiles(self, axis: LoopAxis, sizes: TileSizes) -> int:
        outer = self._outline.outer_bounds.get(axis.block)
        length = self._lengths[id(axis.index)].count
        if isinstance(outer, str):
            length = sizes.symbols.get(outer, length)
        length = length_under(self._outline, axis, sizes.symbols) if length is None else length
        step = sizes.symbols.get(axis.block, 1) if axis.block else 1
        return max(1, -(-(UNKNOWN_EXTENT if length is None else length) // step))

    def _grid_work(self, grid: Grid) -> GridWork:
        by_path: dict[Path, list[Operation]] = {}
        for site in self._outline.sites:
            if grid in site.loops[:1]:
                path = tuple(loop for loop in site.loops if isinstance(loop, Loop))
                by_path.setdefault(path, []).append(site.op)
        axes = self._outline.axes_of(grid)
        phases = tuple(self._phase(axes, path, ops) for path, ops in by_path.items())
        return GridWork(grid, axes, phases)

    def _phase(self, axes: Sequence[LoopAxis], path: Path, ops: list[Operation]) -> Phase:
        functions = [op for op in ops if isinstance(op, Elementwise)]
        others = [op for op in ops if is_arithmetic(op) and not isinstance(op, Elementwise)]
        plain = [op for op in functions if not op.function.is_transcendental]
        special = [op for op in functions if op.function.is_transcendental]
        accesses = [op for op in ops if isinstance(op, (Load, Store, Atomic))]
        return Phase(
            path,
            products=tuple(self._products[id(op)] for op in ops if id(op) in self._products),
            accesses=tuple(self._access(axes, path, op) for op in accesses),
            combinations=tuple(
                Combination(shape := op.form.numbered(op).tile.shape, shape[op.form.axis(op)])
                for op in ops
                if isinstance(op.form, Along)
            ),
            lanes=_count_by_shape([*plain, *others]),
            specials=_count_by_shape(special),
        )

    def _access(self, axes: Sequence[LoopAxis], path: Path, op: Load | Store | Atomic) -> Access:
        roots = [self._outline.roots(index) for index in op.indices]
        used = frozenset().union(*roots) if roots else frozenset()
        return Access(
            self._facts[isinstance(op, Atomic), op.slot],
            is_operand=isinstance(op, Load) and op.result in self._operands,
            grid_axes=frozenset(axis.position for axis in axes if axis.index in used),
            loops=path,
        )

    def _count_passes(self) -> dict[Dim, int]:
        """Walks over a rolled axis: one for each reduction of it, one more to store it."""
        phases = [phase for work in self.grids for phase in work.phases]
        counts = Counter(item.axis for phase in phases for item in phase.combinations)
        stores = [a.fact.shape for work in self.grids for a in work.accesses if not a.is_load]
        return {dim: n + any(dim in shape for shape in stores) for dim, n in counts.items()}


def _count_by_shape(ops: Sequence[Operation]) -> tuple[tuple[Shape, int], ...]:
    return tuple(Counter(op.results[0].tile.shape for op in ops if op.results[0].tile.rank).items())


def access_bytes(model: WorkModel, access: Access, sizes: TileSizes) -> float:
    """Bytes one program moves for an access, each time it comes to it."""
    fact = access.fact
    elements = model.used_elements(fact.shape, sizes) * model.chunks(fact.shape, sizes)
    repeated = model.passes(fact.shape, sizes) if access.is_load else 1
    # An atomic reads and writes.
    return elements * fact.dtype.itemsize * repeated * (2 if fact.kind == "atomic" else 1)
