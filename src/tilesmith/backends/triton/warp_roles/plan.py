"""Who does what in a kernel with warp roles: which loads a producer copies, what may run ahead.

A function goes in, after the standard passes, and a ``RolePlan`` comes out, or the reason why the
form does not fit. The plan is about dependence alone, not about names or sizes.

One turn of the loop falls into four parts. *Early* products need nothing but loaded tiles, so that
those of the next turn can be started first. *Late* products add to an accumulator that nothing
else reads, so that those of the turn before can still be in flight. What lies *between* reads
early results and prepares operands of late ones. *Rescaling* is what a turn does to an accumulator
before it adds to it::

    scores = q @ k.T               early
    peak, weights = ...            between
    acc = acc * shrink             rescaling
    acc += weights @ v             late
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import gcd

from tilesmith.backends.triton.warp_roles.inner_ends import Bounds, find_cuts
from tilesmith.backends.triton.warp_roles.nests.checks import (
    Refused,
    check_ops,
    find_users,
    listing_of,
    only_loop,
    ops_around,
)
from tilesmith.backends.triton.warp_roles.nests.listing import Listing
from tilesmith.backends.triton.warp_roles.refusals import (
    Refusal,
    comes_from_products,
    find_branch,
    leaves_out_rows_only,
)
from tilesmith.backends.triton.workarounds.narrow_conversions import rounds_small_numbers
from tilesmith.dtypes import BF16, F8E4M3, F16, F32
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import Grid, If, Loop, Yield
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Full, Mask
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Load
from tilesmith.ir.ops.reduction import Reduce
from tilesmith.ir.ops.shape import Broadcast, ExpandDims, Permute
from tilesmith.ir.traversal import definitions
from tilesmith.ir.types import Dim, Value


@dataclass(frozen=True)
class Product:
    """A product and the loads that its operands lie in; None: the operand is in registers."""

    dot: Dot
    lhs: Load | None
    rhs: Load


@dataclass(frozen=True)
class RolePlan:
    """The parts of a kernel, by who runs them and when."""

    grid: Grid
    loop: Loop
    rows: str
    """The block whose rows the groups share."""
    kept: tuple[Load, ...]
    """Loads before the loop that products read from shared memory."""
    ring: tuple[Load, ...]
    """Loads of the loop that products read from shared memory, in program order."""
    early: tuple[Product, ...]
    late: tuple[Product, ...]
    between: tuple[Operation, ...]
    rescaling: tuple[Operation, ...]
    begin_step: int = 0
    """What the loop's first index is a multiple of, besides rows of a tile; 1 if not known."""
    branch: If | None = None
    """What the loop stands in, where only some tiles have work."""
    longer: frozenset[Load] = frozenset()
    """Loads whose tiles may hold more than the source asks for."""
    cleared: frozenset[Load] = frozenset()
    """Those of the loop that may hold what lies past its end."""
    listing: Listing | None = None
    """What the loop is made of, where it goes over blocks of a list."""

    @property
    def top(self) -> Loop:
        """The loop that stands among the ops of a tile."""
        return self.loop if self.listing is None else self.listing.outer

    @property
    def tiles(self) -> Loop:
        """The loop over tiles, as the function has it."""
        return self.loop if self.listing is None else self.listing.inner

    @property
    def always(self) -> tuple[Operation, ...]:
        """What groups run before they know whether a tile has work."""
        ops = self.grid.body.ops
        ops = ops[: ops.index(self.branch)] if self.branch is not None else ()
        return tuple(op for op in ops if op not in self.kept)

    @property
    def entering(self) -> tuple[Operation, ...]:
        """What groups run before the loop of a tile that has work."""
        ops = ops_around(self.grid, self.branch)
        return tuple(op for op in ops[: ops.index(self.top)] if op not in self.kept)

    @property
    def before(self) -> tuple[Operation, ...]:
        """What groups run before the loop."""
        return (*self.always, *self.entering)

    @property
    def after(self) -> tuple[Operation, ...]:
        """What groups run after the loop."""
        ops = ops_around(self.grid, self.branch)
        return tuple(op for op in ops[ops.index(self.top) + 1 :] if not isinstance(op, Yield))

    @property
    def products(self) -> tuple[Product, ...]:
        """All products, in the order in which a turn starts them."""
        return (*self.early, *self.late)

    @property
    def long_last(self) -> frozenset[str]:
        """The block of rows, where the loop ends further on for later rows."""
        return frozenset({self.rows}) if self.loop.ends[0] in self._of_rows else frozenset()

    @property
    def late_first(self) -> frozenset[str]:
        """The same, where lists may be longer for later rows."""
        return self.long_last if self.listing is None else frozenset({self.rows})

    @property
    def first_row(self) -> Value:
        """Where a tile of rows begins."""
        return self.grid.body.args[self.grid.blocks.index(self.rows)]

    @property
    def is_uneven(self) -> bool:
        """Whether the loop begins or ends elsewhere for other rows."""
        ends = {self.loop.begins[0], self.loop.ends[0]}
        return self.listing is not None or bool(ends & self._of_rows)

    @property
    def _of_rows(self) -> set[Value]:
        """Positions that grow with the first of a tile's rows."""
        reached = {self.first_row}
        for op in self.before:
            is_kept = isinstance(op, Elementwise) and op.fn in ("add", "minimum", "maximum")
            if is_kept or isinstance(op, Cast):
                reached.update(op.results if reached & set(op.operand_values()) else ())
        return reached

    @property
    def least_stages(self) -> int:
        """Tiles of a ring that must be there at once: two where both kinds of products read one."""
        late = {load for product in self.late for load in (product.lhs, product.rhs)}
        early = {load for product in self.early for load in (product.lhs, product.rhs)}
        return 2 if late & early & set(self.ring) else 1

    @property
    def sides(self) -> dict[str, None]:
        """The blocks along the sides of products, in the order in which they occur."""
        shapes = [(*p.dot.lhs.tile.shape[-2:], p.dot.rhs.tile.shape[-1]) for p in self.products]
        return dict.fromkeys(name for shape in shapes for dim in shape for name in dim.symbols)

    def turns_read(self, load: Load) -> str:
        """Which products read a tile last: ``early`` or ``late`` ones."""
        is_late = any(load in (product.lhs, product.rhs) for product in self.late)
        return "late" if is_late else "early"


def plan_roles(function: Function) -> RolePlan | Refusal:
    """How the warps of a kernel may share its work, or why they cannot."""
    first = function.body.ops[0]
    try:
        grids = [op for op in function.body.ops if op.regions()]
        if len(grids) != 1 or not isinstance(grids[0], Grid):
            return Refusal("it has more than one top-level loop", grids[-1].loc)
        return _Planner(function, grids[0]).plan()
    except Refused as refused:
        return refused.refusal
    except IndexError:
        return Refusal("it has no loop", first.loc)


class _Planner:
    def __init__(self, function: Function, grid: Grid) -> None:
        self._grid = grid
        self._branch = find_branch(grid)
        self._defining = definitions(function.body)
        top = only_loop(grid, self._branch)
        self._listing = listing_of(top, self._defining)
        self._loop = top if self._listing is None else self._listing.loop
        self._body = self._loop.body.ops[:-1]
        self._inside = set(self._body)
        around = ops_around(grid, self._branch)
        listed = () if self._listing is None else self._listing.scalars
        self._ops = tuple(dict.fromkeys((*grid.body.ops, *around, *listed, *self._loop.body.ops)))
        self._nests = (self._branch, top)
        self._users = find_users(self._ops)

    def plan(self) -> RolePlan:
        check_ops(self._ops, self._nests, self._loop)
        dots = [op for op in self._body if isinstance(op, Dot)]
        if not dots:
            raise Refused("its loop has no product", self._loop)
        products = [self._product(dot) for dot in dots]
        late = [product for product in products if self._is_late(product)]
        early = [product for product in products if product not in late]
        for product in early:
            self._check_early(product)
        for product in late:
            self._check_rounded(product)
        if not late:
            raise Refused("no product of its loop adds to an accumulator", dots[0])
        rows = self._rows(products)
        loads = dict.fromkeys(x for p in products for x in (p.lhs, p.rhs) if x is not None)
        rescaling = self._rescaling(late)
        ring = tuple(op for op in self._body if isinstance(op, Load) and op in loads)
        apart = {*ring, *rescaling, *dots}
        # Views of copied tiles are made where a product reads them.
        views = {op for op in self._body if isinstance(op, (Mask, Permute)) and self._is_view(op)}
        plan = RolePlan(
            self._grid,
            self._loop,
            rows,
            tuple(load for load in loads if load not in self._inside),
            ring,
            tuple(early),
            tuple(late),
            tuple(op for op in self._body if op not in apart | views),
            rescaling,
            self._begin_step(rows, self._loop.begins[0]),
            self._branch,
            listing=self._listing,
        )
        plan = self._with_cuts(plan)
        self._check_rows(plan)
        self._check_carried(plan)
        return plan

    def _product(self, dot: Dot) -> Product:
        lhs, rhs = dot.lhs.tile.dtype, dot.rhs.tile.dtype
        if lhs != rhs or lhs not in (F16, BF16, F8E4M3) or dot.result.tile.dtype != F32:
            raise Refused(f"a product of {lhs} and {rhs} in {dot.result.tile.dtype}", dot)
        right = self._copied(dot.rhs)
        if right is None:
            raise Refused("the right operand of a product is computed, not loaded", dot)
        return Product(dot, self._copied(dot.lhs), right)

    def _copied(self, value: Value) -> Load | None:
        """The load that a product's operand comes from, if nothing but products reads it."""
        op = self._defining.get(value)
        while isinstance(op, (Mask, Permute)):
            op = self._defining.get(op.x)
        if not isinstance(op, Load) or op.bases is not None:
            return None
        is_hidden = op not in self._inside and leaves_out_rows_only(op, self._ops, self._defining)
        if op.mask is not None and not is_hidden:
            return None
        return op if self._feeds_products_only(op.result) else None

    def _with_cuts(self, plan: RolePlan) -> RolePlan:
        """Rows of others are computed and not stored; what is past the end of the loop counts."""
        known = (plan.sides, plan.rows, plan.first_row, self._defining)
        bounds = Bounds(*known) if plan.listing is None else plan.listing.bounds(*known)
        loads, step = (*plan.kept, *plan.ring), plan.loop.blocks[0]
        cuts = {load: find_cuts(load, (plan.grid, plan.loop), bounds) for load in loads}
        for load, found in cuts.items():
            if found - {plan.rows, step}:
                raise Refused(f"a tile of {load.tensor.name} may end before the tensor does", load)
        longer = {load for load in loads if cuts[load] or load.mask is not None}
        cleared = {load for load in loads if step in cuts[load]}
        if cleared and plan.listing is not None:
            raise Refused("a block of its list may end before a tensor does", plan.loop)
        return replace(plan, longer=frozenset(longer), cleared=frozenset(cleared))

    def _feeds_products_only(self, value: Value) -> bool:
        return all(
            (isinstance(user, Dot) and value is not user.acc)
            or (isinstance(user, (Mask, Permute)) and self._feeds_products_only(user.result))
            for user in self._users.get(value, [])
        )

    def _is_view(self, op: Mask | Permute) -> bool:
        source = self._defining.get(op.x)
        while isinstance(source, (Mask, Permute)):
            source = self._defining.get(source.x)
        return isinstance(source, Load) and self._feeds_products_only(source.result)

    def _check_rounded(self, product: Product) -> None:
        """Computed operands of 8 bits are packed as they are rounded."""
        op = self._defining.get(product.dot.lhs)
        op = self._defining.get(op.x) if isinstance(op, Mask) and op.fill == 0 else op
        is_rounded = rounds_small_numbers(op, self._defining)
        if product.lhs is None and product.dot.lhs.tile.dtype == F8E4M3 and not is_rounded:
            raise Refused("8-bit weights not rounded from fp32, or of any size", product.dot)

    def _is_late(self, product: Product) -> bool:
        """Whether its result is carried to the next turn and read by nothing else."""
        result, loop = product.dot.result, self._loop
        yields = [op for op in self._users.get(result, []) if isinstance(op, Yield)]
        is_carried = loop.body.yielded.count(result) == 1 and product.dot.acc is not None
        return is_carried and len(self._users[result]) == len(yields) == 1

    def _check_early(self, product: Product) -> None:
        """It must be possible to start it before the turn before has ended."""
        dot = product.dot
        if product.lhs is None:
            raise Refused("a product of computed tiles that is no sum over the loop", dot)
        if dot.acc is not None:
            raise Refused("a sum over the loop that is also read inside of it", dot)

    def _rescaling(self, late: Iterable[Product]) -> tuple[Operation, ...]:
        """What turns an accumulator into the operand that a late product adds to."""
        sums = [product.dot for product in late]
        yielded = self._loop.body.yielded
        pending = [self._loop.carried[yielded.index(dot.result)] for dot in sums]
        found: set[Operation] = set()
        while pending:
            users = self._users.get(pending.pop(), [])
            for user in (op for op in users if op not in sums and op not in found):
                if not isinstance(user, (Elementwise, Cast, Mask)):
                    raise Refused("an accumulator is read while it is summed up", user)
                found.add(user)
                pending.append(user.results[0])
        return tuple(op for op in self._body if op in found)

    def _rows(self, products: Iterable[Product]) -> str:
        """The block along which groups share the rows of every product."""
        blocks = {product.dot.lhs.tile.shape[-2].symbol for product in products}
        (block, *others) = blocks
        if others or block is None or block not in self._grid.blocks:
            raise Refused("its products have no rows of one tile in common", self._loop)
        return block

    def _begin_step(self, rows: str, value: Value) -> int:
        op = self._defining.get(value)
        if value is self._grid.body.args[self._grid.blocks.index(rows)]:
            return 0
        if isinstance(op, Full):
            return int(op.value)
        if isinstance(op, Elementwise) and op.fn in ("add", "sub", "minimum", "maximum"):
            return gcd(*(self._begin_step(rows, arg) for arg in op.args))
        return 1

    def _check_carried(self, plan: RolePlan) -> None:
        """What one turn hands to the next must come from what lies between its products."""
        loop = self._loop
        inside = {value for op in plan.between for value in op.results}
        sums = {product.dot.result for product in plan.late}
        for arg, value in zip(loop.carried, loop.body.yielded):
            is_own = value is arg or value in sums or value in inside
            if not is_own or loop.body.yielded.count(value) > 1:
                raise Refused("the loop hands a value on that it does not compute", loop)
        old = {arg for arg, value in zip(loop.carried, loop.body.yielded) if value not in sums}
        for dot in (product.dot for product in plan.late if product.lhs is None):
            if dot.lhs not in inside:
                raise Refused("a sum multiplies what the turn before has left", dot)
            if not comes_from_products(dot.lhs, self._defining):
                # It meets nothing but a product, and Gluon finds no layout for its indices.
                raise Refused("the left operand of a sum is loaded, then computed", dot)
        pending = [value for op in plan.rescaling for value in op.operand_values()]
        while pending:
            value = pending.pop()
            view = self._defining.get(value)
            if value in old:
                raise Refused("an accumulator is scaled by what the turn before has left", loop)
            if isinstance(view, (Broadcast, ExpandDims, Cast, Mask)):
                pending.append(view.x)

    def _check_rows(self, plan: RolePlan) -> None:
        """Groups must not need each other's rows."""
        rows = Dim.of(plan.rows)
        for product in plan.products:
            if rows in product.dot.rhs.tile.shape or rows == product.dot.lhs.tile.shape[-1]:
                raise Refused("a product sums over the rows that groups would share", product.dot)
        for op in (*plan.before, *plan.between, *plan.rescaling, *plan.after):
            if isinstance(op, Reduce) and op.x.tile.shape[op.axis] == rows:
                raise Refused("rows that groups would share are reduced", op)
        for load in plan.kept:
            if load.mask is not None and load.mask.tile.shape[0] != rows:
                raise Refused(f"a mask of {load.tensor.name} leaves out more than rows", load)
