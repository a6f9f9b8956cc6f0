"""Why a Config cannot be expected to build and run, in the user's names and in numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from tilesmith.ir.ops.memory import Load
from tilesmith.ir.values import Value
from tilesmith.schedule.facts.outline import FunctionOutline
from tilesmith.schedule.resources import ResourceUse
from tilesmith.schedule.space.tile_sizes import TileSizes
from tilesmith.targets import Target


class MeasuredSpec(Protocol):
    """What this needs of a ConfigSpec."""

    structure: FunctionOutline
    target: Target

    def sizes(self, values: Mapping[str, Any]) -> TileSizes:
        """Physical sizes."""
        ...

    def resources(self, values: Mapping[str, Any]) -> ResourceUse:
        """The estimate."""
        ...


def find_problem(spec: MeasuredSpec, values: Mapping[str, Any]) -> str | None:
    """The reason why normalised values do not fit the device; None when they do."""
    use = spec.resources(values)
    if use.fits:
        return None
    sizes, device = spec.sizes(values), spec.target.arch or spec.target.kind

    def text(value: Value | None) -> str:
        return "a tile" if value is None else _tile_text(spec.structure, sizes, value)

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


def _tile_text(structure: FunctionOutline, sizes: TileSizes, value: Value) -> str:
    op = structure.definitions.get(value)
    name = op.tensor.name if isinstance(op, Load) else value.name
    return f"{name or 'a tile'}[{', '.join(str(sizes.size(dim)) for dim in value.tile.shape)}]"
