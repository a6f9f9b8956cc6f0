"""How a GPU Config is made to need less: fewer copies, fewer stages, smaller blocks, more warps."""

from __future__ import annotations

from collections.abc import Iterator

from tilesmith.ir.types import Dim, Shape
from tilesmith.schedule.feasibility import halve_block, roll
from tilesmith.schedule.model.estimates import ResourceUse
from tilesmith.schedule.rules import TargetedKernel, Values

MAX_THREADS = 1024


def lighten(kernel: TargetedKernel, values: Values, use: ResourceUse) -> Iterator[Values | None]:
    """Ways to need less of what there is too little of, the cheapest first."""
    if not use.fits_registers and use.largest_resident is not None:
        shape = use.largest_resident.tile.shape
        yield _lift_register_limit(values)
        yield halve_block(kernel, values, shape)
        yield _widen(kernel, values)
        yield roll(kernel, values, shape)
        yield halve_block(kernel, values, _all_dims(kernel))
    elif not use.straight.is_short:
        yield _fewer_copies(values)
        yield halve_block(kernel, values, _all_dims(kernel))
        yield _widen(kernel, values)
    elif not use.fits_shared:
        yield _fewer_copies(values)
        yield _fewer_stages(values, 3)
        dims = tuple(dim for value in use.shared_tiles for dim in value.tile.shape)
        yield halve_block(kernel, values, dims)
        yield _fewer_stages(values, 1)


def _all_dims(kernel: TargetedKernel) -> Shape:
    return tuple(map(Dim.of, kernel.entries.blocks))


def _widen(kernel: TargetedKernel, values: Values) -> Values | None:
    """Twice as many warps, where the kernel may have them."""
    warps = values["num_warps"] * 2
    most = 16 if kernel.facts.matmuls else 32
    if warps > most or warps * kernel.target.warp_size > MAX_THREADS:
        return None
    return {**values, "num_warps": warps}


def _lift_register_limit(values: Values) -> Values | None:
    """The hardware's limit instead of a lower one."""
    return {**values, "maxnreg": None} if values.get("maxnreg") else None


def _fewer_copies(values: Values) -> Values | None:
    """Loops that are not unrolled hold one set of buffers, and are as long as they are written."""
    unrolls = list(values.get("range_unroll_factors") or [])
    if not any(unrolls):
        return None
    return {**values, "range_unroll_factors": [0 for _ in unrolls]}


def _fewer_stages(values: Values, least: int) -> Values | None:
    stages = list(values.get("range_num_stages") or [])
    if any(count > least for count in stages):
        return {**values, "range_num_stages": [min(count, least) for count in stages]}
    if values["num_stages"] <= least:
        return None
    return {**values, "num_stages": values["num_stages"] - 1}
