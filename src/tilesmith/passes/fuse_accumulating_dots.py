"""Adds a product to its accumulator inside the dot, without rounding it first."""

from __future__ import annotations

from dataclasses import replace

from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.traversal import count_uses
from tilesmith.ir.types import Value


def fuse_accumulating_dots(function: Function) -> Function:
    """Turn ``acc + a @ b`` into one dot with an accumulator.

    Before::

        %d = dot(%a, %b, none) {precision="ieee"} : f32[m, n]
        %h = cast(%d) {bitcast=false} : bf16[m, n]
        %w = cast(%h) {bitcast=false} : f32[m, n]
        %s = elementwise(%acc, %w) {fn="add"} : f32[m, n]

    After::

        %s = dot(%a, %b, %acc) {precision="ieee"} : f32[m, n]

    The casts are those of a product of half types: leaving them out makes ``acc += a @ b`` as
    accurate as ``addmm``. The product must have no other use and stand in the same region.
    """
    uses = count_uses(function.body)
    return function.with_body(_fuse_in(function.body, uses))


def _fuse_in(region: Region, uses: dict[Value, int]) -> Region:
    ops = [
        op.with_regions(tuple(_fuse_in(inner, uses) for inner in op.regions())) for op in region.ops
    ]
    defined_by = {result: op for op in ops for result in op.results}
    absorbed: set[Operation] = set()
    for i, op in enumerate(ops):
        fused = _try_fuse(op, defined_by, uses)
        if fused is not None:
            dot, chain = fused
            ops[i] = dot
            absorbed.update(chain)
            defined_by[op.result] = dot
    kept = tuple(op for op in ops if op not in absorbed)
    return region.with_ops(kept)


def _try_fuse(
    op: Operation, defined_by: dict[Value, Operation], uses: dict[Value, int]
) -> tuple[Operation, list[Operation]] | None:
    if not isinstance(op, Elementwise) or op.fn != "add" or not op.result.tile.dtype.is_float:
        return None
    lhs, rhs = op.args
    for acc, product in ((lhs, rhs), (rhs, lhs)):
        chain = _find_product(product, defined_by, uses)
        if not chain:
            continue
        dot = chain[-1]
        if isinstance(dot, Dot) and dot.result.type == op.result.type:
            return replace(dot, acc=acc, results=op.results, loc=op.loc), chain
    return None


def _find_product(
    value: Value, defined_by: dict[Value, Operation], uses: dict[Value, int]
) -> list[Operation]:
    """The casts from ``value`` back to a dot without accumulator, and the dot; else nothing."""
    chain: list[Operation] = []
    while uses.get(value) == 1 and value in defined_by:
        op = defined_by[value]
        chain.append(op)
        if isinstance(op, Dot):
            return chain if op.acc is None and _is_implied(chain, op) else []
        if not isinstance(op, Cast) or op.bitcast or not op.x.tile.dtype.is_float:
            return []
        value = op.x
    return []


def _is_implied(chain: list[Operation], dot: Dot) -> bool:
    """Whether the casts only go through the operands' types, as half products do anyway."""
    types = {dot.lhs.tile.dtype, dot.rhs.tile.dtype, dot.result.tile.dtype}
    return all(op.result.tile.dtype in types for op in chain)
