"""Steps of a loop: how wide they may be, where tiles may hold more than the loop asks for."""

from __future__ import annotations

from math import gcd

from tilesmith.backends.triton.warp_roles.order import find_order
from tilesmith.backends.triton.warp_roles.plan import RolePlan
from tilesmith.exc import InvalidConfig
from tilesmith.ir.types import Dim
from tilesmith.schedule.rules import TargetedKernel

LEAST_STEP, LEAST_FP8_STEP = 16, 64
BYTE = 8


def has_fp8(plan: RolePlan) -> bool:
    """Whether a product has operands of 8 bits."""
    return any(product.dot.lhs.tile.dtype.bits == BYTE for product in plan.products)


def needs_whole_steps(plan: RolePlan) -> bool:
    """Whether nobody clears what lies past the end: fp8 was never right so, two parts never do."""
    return has_fp8(plan) or (bool(plan.cleared) and find_order(plan) is not None)


def find_length(kernel: TargetedKernel, plan: RolePlan) -> int | None:
    """The number of positions that the loop goes over, where it is the same for all tiles."""
    ends = (plan.loop.begins[0], plan.loop.ends[0])
    begin, end = map(kernel.outline.find_constant, ends)
    return None if begin is None or end is None else max(0, end - begin)


def is_cut_short(kernel: TargetedKernel, plan: RolePlan, step: int) -> bool:
    """Whether the last of such steps may hold what lies past the end of the loop.

    0: whether where it ends differs between tiles.
    """
    length = find_length(kernel, plan)
    return bool(plan.cleared) and (length is None or bool(step and length % step))


def whole_steps(kernel: TargetedKernel, plan: RolePlan, rows: int) -> int:
    """What steps of the loop must divide; 0 where any will do."""
    if plan.listing is not None:
        return plan.listing.size
    whole = gcd(rows, plan.begin_step) if plan.long_last and not plan.cleared else 0
    if not needs_whole_steps(plan):
        return whole
    (axis,) = kernel.outline.axes_of(plan.tiles)
    extent = kernel.outline.extent(Dim.of(plan.rows)) if plan.long_last else axis.extent
    return gcd(whole, extent or 1)


def check_step(kernel: TargetedKernel, plan: RolePlan, rows: int, step: int) -> None:
    """Raise ``InvalidConfig`` where a tile would hold more than its loop asks for."""
    listing, name = plan.listing, plan.loop.blocks[0]
    if listing is not None and not listing.allows(step):
        raise InvalidConfig(
            problem=f"steps of {step} over blocks of {listing.size}, {listing.last} in the last",
            expected="as many steps for every block of a list",
            fix=f"{listing.largest_step(listing.size)} for {name}",
        )
    whole = whole_steps(kernel, plan, rows)
    if whole % step:
        raise InvalidConfig(
            problem=f"steps of {step} over a loop that ends with {rows} rows"
            if plan.long_last
            else f"steps of {step} over a loop that ends before a tensor does",
            expected=f"a divisor of {whole}: whole tiles are copied",
            fix=f"{fitting_step(kernel, plan, rows, step)} for {name}",
        )


def fitting_step(kernel: TargetedKernel, plan: RolePlan, rows: int, step: int) -> int:
    """The largest half, quarter and so on of a step that a loop takes."""
    whole = whole_steps(kernel, plan, rows)
    while whole % step:
        step //= 2
    return step if plan.listing is None else plan.listing.largest_step(step)
