"""Which kernels are one product of words that warps with roles can run by multiply-adds."""

from __future__ import annotations

from tilesmith.backends.triton.warp_roles.inner_ends import Bounds, find_cuts
from tilesmith.backends.triton.warp_roles.nests.checks import (
    Refused,
    check_ops,
    find_users,
    only_loop,
)
from tilesmith.backends.triton.warp_roles.plan import Product, RolePlan
from tilesmith.backends.triton.warp_roles.refusals import Refusal
from tilesmith.dtypes import F32
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import Grid, Loop
from tilesmith.ir.ops.indexing import Mask
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Load
from tilesmith.ir.ops.shape import Permute
from tilesmith.ir.traversal import definitions
from tilesmith.ir.types import Value

MATRIX = 2
"""The rank of what is multiplied."""


def plan_product(function: Function) -> RolePlan | Refusal:
    """The plan of a product of two loaded matrices of words, or why it has none."""
    grids = [op for op in function.body.ops if op.regions()]
    if len(grids) != 1 or not isinstance(grids[0], Grid):
        where = grids[-1] if grids else function.body.ops[0]
        return Refusal("it has not exactly one top-level loop", where.loc)
    try:
        return _Planner(function, grids[0]).plan()
    except Refused as refused:
        return refused.refusal


class _Planner:
    def __init__(self, function: Function, grid: Grid) -> None:
        self._grid = grid
        self._loop = only_loop(grid, None)
        self._defining = definitions(function.body)
        ops = (*grid.body.ops, *self._loop.body.ops)
        check_ops(ops, (None, self._loop), self._loop)
        self._users = find_users(ops)

    def plan(self) -> RolePlan:
        loop = self._loop
        dots = [op for op in loop.body.ops if isinstance(op, Dot)]
        if len(dots) != 1:
            raise Refused("its loop has not exactly one product", loop)
        (dot,) = dots
        self._check(dot)
        lhs, rhs = self._loaded(dot.lhs, dot), self._loaded(dot.rhs, dot)
        rows = dot.lhs.tile.shape[0].symbol
        if rows is None or rows not in self._grid.blocks:
            raise Refused("its rows are those of no tile", dot)
        for op in loop.body.ops:
            is_other = isinstance(op, Load) and op not in (lhs, rhs)
            is_place = not any(value.tile.dtype.is_float for value in op.results)
            if is_other or not (is_place or isinstance(op, (Load, Mask, Permute, Dot))):
                raise Refused(f"its loop does more than multiply: {op.name}", op)
        plan = RolePlan(
            *(self._grid, loop, rows, (), (lhs, rhs), (), (Product(dot, lhs, rhs),), (), ())
        )
        bounds = Bounds(plan.sides, rows, plan.first_row, self._defining)
        for load in plan.ring:
            if find_cuts(load, (self._grid, loop), bounds):
                raise Refused(f"a tile of {load.tensor.name} may end before the tensor does", load)
        return plan

    def _check(self, dot: Dot) -> None:
        """That it is a sum of words over the loop, which nothing else reads."""
        kinds = {value.tile.dtype for value in (dot.lhs, dot.rhs, dot.result)}
        if kinds != {F32} or dot.precision != "ieee" or dot.result.tile.rank != MATRIX:
            raise Refused("it is no exact product of matrices of fp32", dot)
        loop: Loop = self._loop
        is_sum = dot.acc is not None and tuple(loop.body.yielded) == (dot.result,)
        if not is_sum or dot.acc is not loop.carried[0] or len(self._users[dot.result]) > 1:
            raise Refused("its loop carries more than the sum of a product", dot)

    def _loaded(self, operand: Value, dot: Dot) -> Load:
        """The load in the loop that nothing but the product reads."""
        value = operand
        while True:
            op: Operation | None = self._defining.get(value)
            if op not in self._loop.body.ops or len(self._users.get(value, ())) != 1:
                raise Refused("an operand is computed, or read by others", dot)
            if isinstance(op, Load):
                if op.mask is not None or op.bases is not None:
                    raise Refused("an operand has a mask, or is one of a list", op)
                return op
            if not isinstance(op, (Mask, Permute)):
                raise Refused("an operand is computed", dot)
            value = op.x
