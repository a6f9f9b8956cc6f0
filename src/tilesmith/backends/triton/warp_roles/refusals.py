"""Why kernels have no form with roles, and branches and masks of sequences, which are no reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tilesmith.backends.triton.warp_roles.asides import is_search
from tilesmith.diagnostics.location import SourceLocation
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import Grid, If, Yield
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Load, Store
from tilesmith.ir.ops.shape import Broadcast
from tilesmith.ir.types import Value

Definitions = Mapping[Value, Operation]


@dataclass(frozen=True)
class Refusal:
    """Why a kernel has no form with warp roles, and the line that it is about."""

    reason: str
    loc: SourceLocation

    def __str__(self) -> str:
        return f"{self.reason} ({self.loc})" if self.loc.line else self.reason


def find_branch(grid: Grid) -> If | None:
    """The branch that holds all that a tile does, if nothing follows it or happens otherwise."""
    branches = [op for op in grid.body.ops if isinstance(op, If)]
    if len(branches) != 1 or branches[0].results:
        return None
    (branch,) = branches
    position = grid.body.ops.index(branch)
    others = (*grid.body.ops[position + 1 :], *branch.otherwise.ops)
    before = [op for op in grid.body.ops[:position] if not is_search(op)]
    stores = any(isinstance(op, Store) or op.regions() for op in before)
    return None if stores or not all(isinstance(op, Yield) for op in others) else branch


def leaves_out_rows_only(load: Load, ops: Iterable[Operation], defining: Definitions) -> bool:
    """Whether a load's mask leaves out whole rows, and every store leaves out the same ones."""
    stores = [op for op in ops if isinstance(op, Store)]
    source = None if load.mask is None else defining.get(load.mask)
    if not isinstance(source, Broadcast) or any(store.mask is not load.mask for store in stores):
        return False
    rows, *others = source.x.tile.shape
    return not rows.is_one and all(dim.is_one for dim in others)


def comes_from_products(value: Value, defining: Definitions) -> bool:
    """Whether a tile is computed from the result of a product, among others."""
    pending, seen = [value], set[Operation]()
    while pending:
        op = defining.get(pending.pop())
        if isinstance(op, Dot):
            return True
        if op is not None and op not in seen:
            seen.add(op)
            pending += op.operand_values()
    return False
