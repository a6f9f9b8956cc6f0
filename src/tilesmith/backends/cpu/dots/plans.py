"""Decides how a product is carried out: register block, blocking, and what is packed into what.

Packed are numbers of the computing type, or neighbours along k in 32 bits: pairs of bf16 as tile
registers want them, four int8 as byte products do.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from tilesmith.backends.cpu.dots import shapes
from tilesmith.backends.cpu.llvm.builder import Builder
from tilesmith.backends.cpu.llvm.registers import Register, index, memory_element, register_element
from tilesmith.dtypes import BF16, F32, I8, I32, DType

BYTES, PAIRS = 4, 2
"""How many steps along k a packed element holds: of int8, of bf16."""
_DEPTH_BYTES = 1024
_LHS_BYTES = 512 * 1024
_RHS_PANELS = 4
_NEAR_BYTES = 2048
_TILE_LANES = 16
_TILE_DEPTH = 32
_MOST_TILE_DEPTH = 512
_TILE_LHS_BYTES = 1024 * 1024
_JOINED_DEPTH_BYTES = 1024
_JOINED_RATE = 1
"""Products of joined steps in a cycle of a Zen 4."""


class Order(Enum):
    """Which axis of an operand lies contiguously."""

    MAJOR = "major"
    DEPTH = "depth"
    NEITHER = "neither"


class Panels(NamedTuple):
    """Where the panels of an operand come from and go to, as packing functions take it.

    ``majors`` elements are there along the major axis, which may be more than the panels hold.
    """

    source: Register
    major_stride: Register
    depth_stride: Register
    target: Register
    majors: Register
    depth: Register
    num_panels: Register


@dataclass(frozen=True)
class Packing:
    """What one operand is packed into.

    Attributes:
        source: type of the elements in memory; ``dtype`` is that computed in.
        width: elements of a panel along the major axis.
        used: how many of them matter.
        lanes: elements of a vector of ``dtype``.
        group: neighbours along k in one packed element: 1, ``PAIRS`` or ``BYTES``.
        keeps_rows: whether panels are ``[k / lanes][width][lanes]``, each row a piece of a row of
            the operand, instead of ``[k][width]``.
        is_shifted: whether int8 are packed as bytes without sign, greater by 128.
        has_sums: whether behind each panel lies what shifted bytes of the other operand add too
            much: -128 times the sums along k.
        fills_vectors: whether whole vectors along k are multiplied, as tile registers do.
    """

    source: DType
    dtype: DType
    width: int
    used: int
    lanes: int
    group: int = 1
    keeps_rows: bool = False
    is_shifted: bool = False
    has_sums: bool = False
    fills_vectors: bool = False

    @property
    def loaded(self) -> str:
        """LLVM element in memory."""
        return memory_element(self.source)

    @property
    def element(self) -> str:
        """LLVM element of the panels."""
        return register_element(self.dtype) if self.group == 1 else "i32"

    @property
    def stem(self) -> str:
        """Part of function names."""
        kinds = f"{self.source}_{self.dtype}" if self.group == 1 else f"{self.source}x{self.group}"
        form = "_rows" if self.keeps_rows else "_shifted" if self.is_shifted else ""
        form += "_summed" if self.has_sums else "_filled" if self.fills_vectors else ""
        return f"{kinds}_{self.used}in{self.width}x{self.lanes}{form}"

    def steps(self, builder: Builder, depth: Register) -> Register:
        """Packed elements along k that are multiplied."""
        if self.fills_vectors:
            return self.whole_vectors(builder, depth)
        return builder.ceiling_quotient(depth, index(self.group))

    def panel_size(self, builder: Builder, depth: Register) -> Register:
        """Elements of one panel."""
        rows = builder.add(self.whole_vectors(builder, depth), index(int(self.has_sums)))
        return builder.multiply(rows, index(self.width))

    def whole_vectors(self, builder: Builder, depth: Register) -> Register:
        """Rows of a panel: transposition writes whole vectors along k."""
        steps = builder.ceiling_quotient(depth, index(self.group))
        return builder.round_down(builder.add(steps, index(self.lanes - 1)), self.lanes)

    def count_elements(self, depth: int, majors: int) -> int:
        """Elements of all panels."""
        steps = shapes.round_up(-(-depth // self.group), self.lanes) + self.has_sums
        return -(-majors // self.used) * self.width * steps


@dataclass(frozen=True)
class DotPlan:
    """How a product is carried out; equal plans share their code.

    Attributes:
        orders: how the two lie in memory, None where only known at run time.
        reads_lhs, reads_rhs: whether an operand is read where it is.
        depth, rows: what is done of k and of m at a time.
        rhs_panels: how many panels of the right operand are packed at a time; 0 if all were before.
        partial: whether the last rows and the last columns may fill no register block.
    """

    block: shapes.RegisterBlock
    lhs: Packing
    rhs: Packing
    orders: tuple[Order | None, Order | None]
    reads_lhs: bool
    reads_rhs: bool
    depth: int
    rows: int
    rhs_panels: int
    partial: tuple[bool, bool]

    @property
    def uses_tiles(self) -> bool:
        """Whether tile registers multiply pairs of bf16."""
        return self.lhs.keeps_rows

    @property
    def joined_steps(self) -> int:
        """How many steps along k lanes take at once."""
        return 1 if self.uses_tiles else self.lhs.group

    @property
    def element(self) -> str:
        """LLVM element computed in."""
        return register_element(self.lhs.dtype)

    @property
    def name(self) -> str:
        """Name of the function."""
        orders = "_".join(order.value if order else "any" for order in self.orders)
        places = f"{self.reads_lhs:d}{self.reads_rhs:d}"
        sizes = f"{self.rows}x{self.depth}x{self.rhs_panels}_{self.partial[0]:d}{self.partial[1]:d}"
        return f"product_{self.lhs.stem}_{self.rhs.stem}_{orders}_{places}_{sizes}"


def plan_dot(lhs: shapes.View, rhs: shapes.View, problem: shapes.DotProblem) -> DotPlan:
    """The way to carry out a product."""
    is_possible = problem.lanes == _TILE_LANES and problem.dtype == F32
    if problem.has_matrix_tiles and is_possible and lhs.dtype == rhs.dtype == BF16:
        return _plan_tiles(lhs, rhs, problem)
    group = _joined_steps(lhs, rhs, problem)
    if group > 1:
        return _plan_joined(lhs, rhs, problem, group)
    (m, n, _), dtype = problem.bounds, problem.dtype
    reads_lhs = _is_near(lhs, dtype)
    most_rows = shapes.MAX_ROWS_IN_PLACE if reads_lhs else shapes.MAX_ROWS
    block = shapes.register_block(problem.lanes, dtype, (m, n), most_rows, rhs.panel)
    packed = Packing(lhs.dtype, dtype, block.packed_rows, block.rows, block.lanes)
    panels = Packing(rhs.dtype, dtype, block.columns, block.columns, block.lanes)
    reads_rhs = rhs.panel > 0 or reads_in_place(rhs, (m, dtype), block)
    depth = _depth(problem, _DEPTH_BYTES // dtype.itemsize)
    rows = _LHS_BYTES // (depth * dtype.itemsize * block.packed_rows)
    count = 0 if rhs.panel else 1 if reads_rhs else _count_panels(n, block)
    orders, partial = _orders(lhs, rhs), _partial(problem, block)
    rows = _whole_blocks(m, rows, block)
    reads = reads_lhs, reads_rhs
    return DotPlan(block, packed, panels, orders, *reads, depth, rows, count, partial)


def _plan_tiles(lhs: shapes.View, rhs: shapes.View, problem: shapes.DotProblem) -> DotPlan:
    m, n, _ = problem.bounds
    block = shapes.tile_block(problem.lanes, (m, n))
    depth = _depth(problem, _MOST_TILE_DEPTH)
    rows = _TILE_LHS_BYTES // (2 * shapes.round_up(depth, _TILE_DEPTH) * block.rows)
    sizes = block.columns, block.columns, block.lanes
    panels = Packing(BF16, F32, *sizes, group=PAIRS, fills_vectors=True)
    packed = replace(panels, width=block.rows, used=block.rows, keeps_rows=True)
    orders, partial = _orders(lhs, rhs), _partial(problem, block)
    rows, count = _whole_blocks(m, rows, block), _count_panels(n, block)
    reads = _has_whole_tiles(lhs, problem), False
    return DotPlan(block, packed, panels, orders, *reads, depth, rows, count, partial)


def _joined_steps(lhs: shapes.View, rhs: shapes.View, problem: shapes.DotProblem) -> int:
    """How many steps along k lanes can take at once; that of a right operand packed before."""
    if rhs.panel:
        return rhs.group
    if problem.has_byte_products and problem.dtype == I32 and lhs.dtype == I8:
        return BYTES
    is_paired = problem.has_pair_products and problem.dtype == F32
    return PAIRS if is_paired and lhs.dtype == rhs.dtype == BF16 else 1


def _plan_joined(
    lhs: shapes.View, rhs: shapes.View, problem: shapes.DotProblem, group: int
) -> DotPlan:
    """Several steps along k at once; of bytes those of the right operand have no sign."""
    (m, n, _), dtype = problem.bounds, problem.dtype
    block = shapes.register_block(problem.lanes, dtype, (m, n), panel=rhs.panel, rate=_JOINED_RATE)
    itemsize, is_of_bytes = dtype.itemsize // group, group == BYTES
    depth = _depth(problem, _JOINED_DEPTH_BYTES // itemsize)
    rows = _LHS_BYTES // (shapes.round_up(depth, group) * itemsize * block.packed_rows)
    packed = Packing(lhs.dtype, dtype, block.packed_rows, block.rows, block.lanes, group)
    panels = replace(packed, source=rhs.dtype, width=block.columns, used=block.columns)
    packed, panels = replace(packed, has_sums=is_of_bytes), replace(panels, is_shifted=is_of_bytes)
    orders, partial = _orders(lhs, rhs), _partial(problem, block)
    rows, count = _whole_blocks(m, rows, block), 0 if rhs.panel else _count_panels(n, block)
    reads = False, rhs.panel > 0
    return DotPlan(block, packed, panels, orders, *reads, depth, rows, count, partial)


def _depth(problem: shapes.DotProblem, most: int) -> int:
    return min(most, max(problem.bounds[2] or most, 1))


def _has_whole_tiles(lhs: shapes.View, problem: shapes.DotProblem) -> bool:
    """Whether tiles of the left operand can be read where they are."""
    depth, stride = problem.extents[2].constant, lhs.strides[0].constant
    is_whole = depth is not None and depth % _TILE_DEPTH == 0
    is_close = stride is not None and 2 * abs(stride) <= _NEAR_BYTES
    return is_whole and is_close and lhs.strides[1].constant == 1


def _whole_blocks(m: int | None, blocks: int, block: shapes.RegisterBlock) -> int:
    """Rows done at a time: that many blocks or as many as there are."""
    rows = max(blocks, 1) * block.rows
    return min(rows, shapes.round_up(m, block.rows)) if m else rows


def _count_panels(n: int | None, block: shapes.RegisterBlock) -> int:
    return min(_RHS_PANELS, -(-n // block.columns)) if n else _RHS_PANELS


def _partial(problem: shapes.DotProblem, block: shapes.RegisterBlock) -> tuple[bool, bool]:
    pairs = zip(problem.extents, (block.rows, block.columns))
    m, n = (size.constant is None or size.constant % by != 0 for size, by in pairs)
    return m, n


def _orders(lhs: shapes.View, rhs: shapes.View) -> tuple[Order | None, Order | None]:
    return order_of(*lhs.strides), order_of(rhs.strides[1], rhs.strides[0])


def order_of(major: Register, depth: Register) -> Order | None:
    """How an operand with these strides lies in memory, if that is known."""
    if depth.constant == 1:
        return Order.DEPTH
    if major.constant == 1:
        return Order.MAJOR
    is_known = major.constant is not None and depth.constant is not None
    return Order.NEITHER if is_known else None


def reads_in_place(
    rhs: shapes.View,
    product: tuple[int | None, DType],
    block: shapes.RegisterBlock,
    near: int = _NEAR_BYTES,
) -> bool:
    """Whether the right operand is read where it is: packing is more work or changes little.

    ``product`` is how many rows the result has at most and what it is computed in; rows that lie
    ``near`` bytes apart stay in the cache.
    """
    rows, dtype = product
    is_used_once = rows is not None and rows <= block.rows
    return _is_near(rhs, dtype, near) or (is_used_once and _is_readable(rhs, dtype))


def _is_near(operand: shapes.View, dtype: DType, near: int = _NEAR_BYTES) -> bool:
    """Whether it can be read where it is and rows are so close that the cache holds many."""
    stride = operand.strides[0].constant
    is_close = stride is not None and abs(stride) * dtype.itemsize <= near
    return is_close and _is_readable(operand, dtype)


def _is_readable(operand: shapes.View, dtype: DType) -> bool:
    """Whether rows are contiguous and of the computing type."""
    is_same = memory_element(operand.dtype) == register_element(dtype)
    return is_same and operand.strides[1].constant == 1
