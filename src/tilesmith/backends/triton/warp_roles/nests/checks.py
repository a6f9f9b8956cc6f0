"""What warps with roles can run at all, by kind of op and by where it stands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilesmith.backends.triton.warp_roles.asides import is_choice, is_search
from tilesmith.backends.triton.warp_roles.nests.listing import Definitions, Listing, find_listing
from tilesmith.backends.triton.warp_roles.refusals import Refusal
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import Grid, If, Loop, Yield
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Arange, BlockSize, Full, Mask, TileIndex
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Load, Store
from tilesmith.ir.ops.reduction import Reduce
from tilesmith.ir.ops.shape import Broadcast, ExpandDims, Permute
from tilesmith.ir.types import Value

_PLAIN_OPS = (
    *(Elementwise, Cast, Mask, Broadcast, ExpandDims, Reduce),
    *(Full, TileIndex, Arange, BlockSize, Load, Store, Dot, Yield),
)
"""What the groups that compute can run; other ops exchange lanes in ways not tried with them."""


class Refused(Exception):  # noqa: N818  it never leaves the planner
    """Why there is no plan."""

    def __init__(self, reason: str, op: Operation) -> None:
        super().__init__(reason)
        self.refusal = Refusal(reason, op.loc)


def listing_of(top: Loop, defining: Definitions) -> Listing | None:
    """What two loops are that are one; None where there is one."""
    found = find_listing(top, defining)
    if isinstance(found, str):
        raise Refused(found, top)
    return found


def only_loop(grid: Grid, branch: If | None) -> Loop:
    """The loop of a tile; two where it goes over a list are told apart later."""
    around = ops_around(grid, branch)
    found = [op for op in around if op.regions() and not (is_search(op) or is_choice(op))]
    if len(found) != 1 or not isinstance(found[0], Loop):
        raise Refused("it has not exactly one loop inside its tiles", found[-1] if found else grid)
    return found[0]


def ops_around(grid: Grid, branch: If | None) -> tuple[Operation, ...]:
    """Those among which the loop stands."""
    return grid.body.ops if branch is None else branch.then.ops


def check_ops(ops: Iterable[Operation], nests: Sequence[Operation | None], loop: Loop) -> None:
    """Refuse what no role can run, and what stands where no role would."""
    if loop.rank != 1 or not loop.blocks[0] or loop.is_ordered:
        raise Refused("its loop does not run over the tiles of one axis in any order", loop)
    for op in ops:
        is_known = isinstance(op, (*_PLAIN_OPS, Permute)) or op in nests
        if not is_known and not is_search(op) and not is_choice(op):
            raise Refused(f"warps with roles cannot run {op.name} yet", op)
        if isinstance(op, Dot) and op not in loop.body.ops:
            raise Refused("a product stands outside of the loop", op)
    for op in loop.body.ops:
        if isinstance(op, Store):
            raise Refused("it stores inside of the loop", op)


def find_users(ops: Iterable[Operation]) -> dict[Value, list[Operation]]:
    """The ops that read each value."""
    users: dict[Value, list[Operation]] = {}
    for op in ops:
        for value in dict.fromkeys(op.operand_values()):
            users.setdefault(value, []).append(op)
    return users
