"""In which order a turn starts its products, where their results are not needed at once.

Gradients of attention need two early products: scores, and what they are multiplied with later.
Most of the work between products needs the scores alone::

    scores = k @ q.T                  ahead: started at the end of the turn before
    along = v @ grads.T               deferred: in flight while ...
    weights = exp2(scores - lse)      ... the first part runs
    for_values += weights @ grads     started as soon as the first part is done
    slope = weights * (along - mean)  second part
    for_keys += slope @ q

So no turn has to hold the operands of another one, as it does where all late products of the turn
before are in flight together with all early ones.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilesmith.backends.triton.warp_roles.plan import Product, RolePlan
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.memory import Load
from tilesmith.ir.types import Dim, Value


@dataclass(frozen=True)
class TurnOrder:
    """The parts of a turn, in the order in which they are run."""

    ahead: Product
    """Started by the turn before."""
    deferred: tuple[Product, ...]
    """Other early products, in flight while the first part runs."""
    first: tuple[Operation, ...]
    first_sums: tuple[Product, ...]
    second: tuple[Operation, ...]
    second_sums: tuple[Product, ...]

    @property
    def sums(self) -> tuple[Product, ...]:
        """All late products, as they are started."""
        return (*self.first_sums, *self.second_sums)

    def is_ahead(self, load: Load) -> bool:
        """Whether the turn before reads a tile already."""
        return load in (self.ahead.lhs, self.ahead.rhs)

    @property
    def last_readers(self) -> tuple[Product, ...]:
        """The products that read tiles last which no turn reads ahead: deferred ones or sums."""
        for sums in (self.second_sums, self.first_sums):
            loads = {load for product in sums for load in (product.lhs, product.rhs)}
            if any(load is not None and not self.is_ahead(load) for load in loads):
                return sums
        return self.deferred

    def fewest_deferred(self, stages: int) -> int:
        """Slots that the tiles of deferred products need where others have so many stages.

        One fewer will do if they are handed back in the middle of a turn.
        """
        return stages - 1 if self.last_readers == self.deferred and stages > 1 else stages


def find_order(plan: RolePlan) -> TurnOrder | None:
    """How a turn is cut; None where all that lies between needs all early products."""
    sums = {product.dot.result for product in plan.late}
    is_plain = not plan.rescaling and all(value in sums for value in plan.loop.body.yielded)
    # Operands of 8 bits are packed for the next turn: there is no form of it for this one.
    is_wide = all(product.dot.lhs.tile.dtype.bits > 8 for product in plan.late)
    if len(plan.early) < 2 or not is_plain or not is_wide:
        return None
    needs = _find_needs(plan)
    alone = [sum(needs[op] == {product} for op in plan.between) for product in plan.early]
    if not max(alone):
        return None
    # What has most to do after it goes first.
    ahead = plan.early[alone.index(max(alone))]
    first = _find_first(plan, ahead, needs)
    second = tuple(op for op in plan.between if op not in first)
    late = {value for op in second for value in op.results}
    return TurnOrder(
        ahead,
        tuple(product for product in plan.early if product is not ahead),
        tuple(op for op in plan.between if op in first),
        tuple(product for product in plan.late if product.dot.lhs not in late),
        second,
        tuple(product for product in plan.late if product.dot.lhs in late),
    )


def least_stages(plan: RolePlan) -> int:
    """Tiles of a ring that must be there at once: a turn of two parts begins the next one."""
    return plan.least_stages if find_order(plan) is None else 2


def find_vectors(plan: RolePlan) -> tuple[Load, ...]:
    """Vectors along the loop that are read between products; they may be copied like tiles."""
    if not plan.early:
        return ()
    return tuple(op for op in plan.between if isinstance(op, Load) and _is_vector(plan, op))


def _find_needs(plan: RolePlan) -> dict[Operation, set[Product]]:
    """The early products that each op between products depends on."""
    of_value: dict[Value, set[Product]] = {p.dot.result: {p} for p in plan.early}
    found: dict[Operation, set[Product]] = {}
    for op in plan.between:
        needed: set[Product] = set().union(
            *(of_value.get(value, set()) for value in op.operand_values())
        )
        found[op] = needed
        of_value.update(dict.fromkeys(op.results, needed))
    return found


def _find_first(
    plan: RolePlan, ahead: Product, needs: dict[Operation, set[Product]]
) -> set[Operation]:
    """What needs no other product than the one ahead, and what that reads."""
    found = {op for op in plan.between if needs[op] == {ahead}}
    read = {value for op in found for value in op.operand_values()}
    for op in reversed(plan.between):
        if not needs[op] and read & set(op.results):
            found.add(op)
            read.update(op.operand_values())
    return found


def _is_vector(plan: RolePlan, load: Load) -> bool:
    """Whether a load reads one number for each step of the loop, for all rows alike."""
    along = Dim.of(plan.loop.blocks[0])
    dims = [dim for dim in load.result.tile.shape if not dim.is_one]
    others = [dim for dim in dims if dim != along and dim.symbol not in plan.grid.blocks]
    is_alone = along in dims and not others and Dim.of(plan.rows) not in dims
    return is_alone and load.mask is None and load.bases is None
