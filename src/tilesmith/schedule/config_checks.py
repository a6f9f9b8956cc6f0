"""What a Config as a whole must keep to: tiles the language allows, launches the device takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from tilesmith.diagnostics.errors import InvalidConfig
from tilesmith.ir.values import Value
from tilesmith.schedule.facts.outline import FunctionOutline
from tilesmith.schedule.pid_types import MAX_LAUNCH_SIDE, count_on_launch_axes
from tilesmith.schedule.resources import ResourceUse
from tilesmith.schedule.space.slots import Entries
from tilesmith.schedule.space.tile_sizes import TileSizes, most_elements
from tilesmith.targets import Target


class CheckedSpec(Protocol):
    """What checks need of a ConfigSpec."""

    structure: FunctionOutline
    entries: Entries
    target: Target

    def sizes(self, values: Mapping[str, Any]) -> TileSizes:
        """Physical sizes of all dimensions."""
        ...

    def resources(self, values: Mapping[str, Any]) -> ResourceUse:
        """The estimate."""
        ...


def check_tiles(spec: CheckedSpec, values: Mapping[str, Any]) -> None:
    """Refuse tiles that are too large."""
    use = spec.resources(values)
    if not use.has_legal_tiles and use.largest_tile is not None:
        _raise_tile_too_large(spec, use.largest_tile, use.tile_elements)


def check_launch(spec: CheckedSpec, values: Mapping[str, Any]) -> None:
    """Refuse more programs along a launch axis than there may be."""
    if exceeds_launch(spec, values):
        counts = " x ".join(map(str, _xyz_counts(spec, values)))
        raise InvalidConfig(
            problem=f"pid_type='xyz' would launch {counts} programs",
            expected=f"at most {MAX_LAUNCH_SIDE} along the second and third axis",
            fix="use pid_type='flat', larger block_sizes, or another of the loop_orders",
        )


def exceeds_launch(spec: CheckedSpec, values: Mapping[str, Any]) -> bool:
    """Whether some launch axis has more programs than there may be."""
    return max(_xyz_counts(spec, values)[1:], default=0) > MAX_LAUNCH_SIDE


def _xyz_counts(spec: CheckedSpec, values: Mapping[str, Any]) -> list[int]:
    if values.get("pid_type") != "xyz":
        return []
    order = values["loop_orders"][0]
    return count_on_launch_axes(spec.structure, spec.sizes(values).symbols, order)


def _raise_tile_too_large(spec: CheckedSpec, tile: Value, elements: int) -> None:
    shape = tile.tile.shape
    symbols = {symbol for dim in shape for symbol in dim.symbols}
    blocks = enumerate(spec.entries.blocks)
    remedies = [f"block_sizes[{i}] ({name})" for i, name in blocks if name in symbols]
    rolled = enumerate(spec.entries.rolled)
    remedies += [f"reduction_loops[{i}]" for i, dim in rolled if dim in shape]
    raise InvalidConfig(
        problem=f"tile {tile.name} {tile.type} would hold {elements} elements",
        loc=tile.loc,
        expected=f"at most {most_elements(spec.target)} elements in one tile",
        fix="lower " + " or ".join(remedies) if remedies else "split this axis into tiles",
    )
