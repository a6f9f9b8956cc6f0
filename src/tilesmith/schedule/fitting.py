"""Shrinks a Config until its estimated resources fit the device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from typing import Any, Protocol

from tilesmith.ir.types import Dim, Shape
from tilesmith.schedule.config import Config
from tilesmith.schedule.facts.collect import Facts
from tilesmith.schedule.facts.outline import FunctionOutline
from tilesmith.schedule.resources import ResourceUse
from tilesmith.schedule.space.block_bounds import block_minimum, power_of_2_floor
from tilesmith.schedule.space.slots import Entries, Slot
from tilesmith.targets import Target

MAX_STEPS = 200
Values = dict[str, Any]


class FittingSpec(Protocol):
    """What fitting needs of a ConfigSpec."""

    structure: FunctionOutline
    facts: Facts
    entries: Entries
    target: Target
    scalars: dict[str, Slot]

    def settle(self, values: Mapping[str, Any]) -> Values:
        """Every value checked and settled, tiles of any size allowed."""
        ...

    def resources(self, values: Mapping[str, Any]) -> ResourceUse:
        """The estimate for settled values."""
        ...

    def normalize(self, config: Config | Mapping[str, Any]) -> Config:
        """The strict form."""
        ...


def fit(spec: FittingSpec, values: Mapping[str, Any], most_elements: float = inf) -> Config:
    """The nearest smaller Config that fits; the smallest one reached when none does.

    ``most_elements`` is for a search that has no use for larger tiles, legal as they are.
    """
    current = spec.settle(values)
    for _ in range(MAX_STEPS):
        use = spec.resources(current)
        if use.fits and use.tile_elements <= most_elements:
            break
        smaller = _shrink(spec, current, use, most_elements)
        if smaller is None:
            break
        current = spec.settle(smaller)
    return spec.normalize(current)


def _shrink(
    spec: FittingSpec, values: Values, use: ResourceUse, most_elements: float
) -> Values | None:
    attempts: list[Callable[[], Values | None]] = []
    is_tile_too_large = not use.has_legal_tiles or use.tile_elements > most_elements
    if is_tile_too_large and use.largest_tile is not None:
        shape = use.largest_tile.tile.shape
        attempts = [lambda: _halve_block(spec, values, shape), lambda: _roll(spec, values, shape)]
    elif not use.fits_registers and use.largest_resident is not None:
        shape = use.largest_resident.tile.shape
        attempts = [
            lambda: _lift_register_limit(values),
            lambda: _halve_block(spec, values, shape),
            lambda: _widen(spec, values),
            lambda: _roll(spec, values, shape),
            lambda: _halve_block(spec, values, _all_dims(spec)),
        ]
    elif not use.straight.is_short:
        attempts = [
            lambda: _fewer_copies(values),
            lambda: _halve_block(spec, values, _all_dims(spec)),
            lambda: _widen(spec, values),
        ]
    elif not use.fits_shared:
        dims = tuple(dim for value in use.shared_tiles for dim in value.tile.shape)
        attempts = [
            lambda: _fewer_copies(values),
            lambda: _fewer_stages(values, 3),
            lambda: _halve_block(spec, values, dims),
            lambda: _fewer_stages(values, 1),
        ]
    found = (attempt() for attempt in attempts)
    return next((smaller for smaller in found if smaller is not None), None)


def _all_dims(spec: FittingSpec) -> Shape:
    return tuple(map(Dim.of, spec.entries.blocks))


def _least(spec: FittingSpec, name: str) -> int:
    return block_minimum(spec.structure, spec.facts, spec.target, name)


def _halve_block(spec: FittingSpec, values: Values, dims: Shape) -> Values | None:
    """Halve the largest block along one of the dimensions."""
    symbols = {symbol for dim in dims for symbol in dim.symbols}
    sizes = list(values["block_sizes"])
    candidates = [
        i
        for i, name in enumerate(spec.entries.blocks)
        if name in symbols and sizes[i] > _least(spec, name)
    ]
    if not candidates:
        return None
    largest = max(candidates, key=lambda i: (sizes[i], i))
    # A CPU's blocks need not be powers of two, but half of one need not be a legal block.
    sizes[largest] = power_of_2_floor(sizes[largest] - 1)
    return {**values, "block_sizes": sizes}


def _roll(spec: FittingSpec, values: Values, dims: Shape) -> Values | None:
    """Walk a row in chunks, or in smaller ones."""
    chunks = list(values.get("reduction_loops") or [])
    for i, dim in enumerate(spec.entries.rolled):
        size = chunks[i] or (1 << ((spec.structure.extent(dim) or 1) - 1).bit_length())
        if dim in dims and size > 16:
            chunks[i] = size // 2
            return {**values, "reduction_loops": chunks}
    return None


def _widen(spec: FittingSpec, values: Values) -> Values | None:
    """Twice as many warps, where the kernel may have them."""
    warps = values["num_warps"] * 2
    most = 16 if spec.facts.matmuls else 32
    if warps > most or not spec.scalars["num_warps"].valid.contains(warps):
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
