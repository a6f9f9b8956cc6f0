"""Whether a Config can be expected to build and run: why not, and the nearest that can."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilesmith.exc import InvalidConfig
from tilesmith.ir.ops.memory import Load
from tilesmith.ir.types import Shape, Value
from tilesmith.schedule.model.estimates import ResourceUse
from tilesmith.schedule.rules import KernelModel, TargetedKernel, Values
from tilesmith.schedule.space.sizes import power_of_2_floor


def check_tiles(model: KernelModel, values: Mapping[str, Any]) -> None:
    """Refuse tiles that are too large."""
    use = model.resources(values)
    if not use.has_legal_tiles and use.largest_tile is not None:
        _raise_tile_too_large(model.kernel, use.largest_tile, use)


def _raise_tile_too_large(kernel: TargetedKernel, tile: Value, use: ResourceUse) -> None:
    shape = tile.tile.shape
    symbols = {symbol for dim in shape for symbol in dim.symbols}
    blocks = enumerate(kernel.entries.blocks)
    remedies = [f"block_sizes[{i}] ({name})" for i, name in blocks if name in symbols]
    rolled = enumerate(kernel.entries.rolled)
    remedies += [f"reduction_loops[{i}]" for i, dim in rolled if dim in shape]
    raise InvalidConfig(
        problem=f"tile {tile.name} {tile.type} would hold {use.tile_elements} elements",
        loc=tile.loc,
        expected=f"at most {use.limits.tile_elements} elements in one tile",
        fix="lower " + " or ".join(remedies) if remedies else "split this axis into tiles",
    )


def find_problem(model: KernelModel, values: Mapping[str, Any]) -> str | None:
    """Why normalised values do not fit the device, in the user's names; None when they do."""
    use = model.resources(values)
    if use.fits:
        return None
    kernel, device = model.kernel, model.kernel.target.label

    def text(value: Value | None) -> str:
        return "a tile" if value is None else _tile_text(kernel, values, value)

    if not use.has_legal_tiles:
        most = use.limits.tile_elements
        return f"{text(use.largest_tile)} has {use.tile_elements} elements; at most {most} may be"
    if not use.fits_shared:
        tiles = ", ".join(dict.fromkeys(map(text, use.shared_tiles)))
        stages = values.get("num_stages", 1)
        needed = f"needs {use.shared_bytes} bytes of shared memory for {tiles} in {stages} stages"
        return f"{needed}; {device} has {use.limits.shared_bytes}"
    if use.straight.problem:
        return use.straight.problem
    needed = f"needs {use.registers} registers for each thread with {text(use.largest_resident)}"
    return f"{needed} on {values['num_warps']} warps; {device} has {use.limits.registers}"


def _tile_text(kernel: TargetedKernel, values: Mapping[str, Any], value: Value) -> str:
    op, sizes = kernel.outline.definitions.get(value), kernel.sizes(values)
    name = op.tensor.name if isinstance(op, Load) else value.name
    return f"{name or 'a tile'}[{', '.join(str(sizes.size(dim)) for dim in value.tile.shape)}]"


def shrink(
    kernel: TargetedKernel, values: Values, use: ResourceUse, most_elements: float
) -> Values | None:
    """Values that need less of what there is too little of; None where there are none."""
    is_tile_too_large = not use.has_legal_tiles or use.tile_elements > most_elements
    if not is_tile_too_large or use.largest_tile is None:
        attempts = kernel.rules.lighten(kernel, values, use)
        return next((smaller for smaller in attempts if smaller is not None), None)
    shape = use.largest_tile.tile.shape
    return halve_block(kernel, values, shape) or roll(kernel, values, shape)


def halve_block(kernel: TargetedKernel, values: Values, dims: Shape) -> Values | None:
    """Halve the largest block along one of the dimensions."""
    symbols = {symbol for dim in dims for symbol in dim.symbols}
    sizes = list(values["block_sizes"])
    candidates = [
        i
        for i, name in enumerate(kernel.entries.blocks)
        if name in symbols and sizes[i] > kernel.minimum(name)
    ]
    if not candidates:
        return None
    largest = max(candidates, key=lambda i: (sizes[i], i))
    # Blocks need not be powers of two everywhere, but half of one need not be a legal block.
    sizes[largest] = power_of_2_floor(sizes[largest] - 1)
    return {**values, "block_sizes": sizes}


def roll(kernel: TargetedKernel, values: Values, dims: Shape) -> Values | None:
    """Walk a row in chunks, or in smaller ones."""
    chunks = list(values.get("reduction_loops") or [])
    for i, dim in enumerate(kernel.entries.rolled):
        size = chunks[i] or (1 << ((kernel.outline.extent(dim) or 1) - 1).bit_length())
        if dim in dims and size > 16:
            chunks[i] = size // 2
            return {**values, "reduction_loops": chunks}
    return None
