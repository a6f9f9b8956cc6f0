"""From ``block_sizes`` and ``reduction_loops`` to the physical size of every dimension."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilesmith.ir.types import Dim
from tilesmith.schedule.facts.collect import Facts
from tilesmith.schedule.facts.outline import FunctionOutline
from tilesmith.schedule.schedule import next_power_of_2
from tilesmith.schedule.space.block_bounds import block_minimum
from tilesmith.schedule.space.normalize import round_chunk
from tilesmith.schedule.space.slots import Entries
from tilesmith.schedule.space.tile_sizes import (
    TileSizes,
    dot_minimums,
    pad,
    pad_constants,
    size_symbols,
)
from tilesmith.targets import Target


class SizeResolver:
    """Sizes of one function's blocks and tiles under different Configs."""

    def __init__(
        self, structure: FunctionOutline, facts: Facts, entries: Entries, target: Target
    ) -> None:
        self._structure = structure
        self._entries = entries
        self._target = target
        minimums = dot_minimums(facts.matmuls, target)
        self._padded = pad_constants(structure, minimums, target)
        self._runtime_sizes = size_symbols(structure, minimums, target)
        self._lows = {
            name: next_power_of_2(block_minimum(structure, facts, target, name))
            for name in entries.blocks
        }
        slots = {structure.function.block(name).slot: name for name in entries.blocks}
        self._representative = {
            block.name: slots[block.slot]
            for block in structure.function.blocks
            if block.slot is not None
        }

    def settle_blocks(self, sizes: list[int]) -> list[int]:
        """Raise blocks to their minimum, then clamp inner blocks to the tile they walk."""
        by_name = {
            name: max(size, self._lows[name]) for name, size in zip(self._entries.blocks, sizes)
        }
        for name, bound in self._structure.outer_bounds.items():
            own = self._representative.get(name)
            if own is not None:
                outer = bound if isinstance(bound, int) else self._block_size(by_name, bound)
                clamped = min(by_name[own], next_power_of_2(outer))
                by_name[own] = max(self._lows[own], clamped)
        return list(by_name.values())

    def settle_chunks(self, chunks: list[int | None]) -> list[int | None]:
        """Round chunks; one that covers the row means the whole row."""
        return [
            round_chunk(chunk, self._structure.extent(dim))
            for dim, chunk in zip(self._entries.rolled, chunks)
        ]

    def _block_size(self, by_name: Mapping[str, int], name: str) -> int:
        if name in self._representative:
            return by_name[self._representative[name]]
        block = self._structure.function.block(name)
        return pad(self._target, block.fixed or block.extent or 1)

    def sizes(self, values: Mapping[str, Any]) -> TileSizes:
        """Physical sizes of all dimensions under settled values."""
        by_name = dict(zip(self._entries.blocks, values.get("block_sizes") or []))
        symbols = {
            block.name: self._block_size(by_name, block.name)
            for block in self._structure.function.blocks
        }
        chunks = zip(self._entries.rolled, values.get("reduction_loops") or [])
        rolled: dict[Dim, int] = {dim: chunk for dim, chunk in chunks if chunk is not None}
        return TileSizes({**symbols, **self._runtime_sizes}, self._padded, rolled)
