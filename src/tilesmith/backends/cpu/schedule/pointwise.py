"""CPU schedules of elementwise kernels: long runs of memory, several for each core."""

from __future__ import annotations

from tilesmith.backends.cpu.schedule.seed import (
    SERIAL_ELEMENTS,
    CpuSeed,
    is_guess,
    longest,
    programs_share,
    spread,
)
from tilesmith.schedule.rules import TargetedKernel
from tilesmith.schedule.space.sizes import power_of_2_floor

LEAST_ELEMENTS, MOST_ELEMENTS = 1 << 14, 1 << 16
"""Of one program: enough to hide its start, few enough to stay in the second cache."""
RUN_ELEMENTS = 1 << 14


def pointwise_seeds(kernel: TargetedKernel) -> list[CpuSeed]:
    """A seed, and one with four times shorter programs."""
    fact = kernel.facts.pointwise
    if fact is None or not kernel.entries.blocks:
        return []
    along = _blocks_along_memory(kernel)
    slab = max(1, fact.slab)
    is_known = not any(is_guess(kernel, name) for name in kernel.entries.blocks)
    if is_known and fact.total is not None and fact.total * slab <= SERIAL_ELEMENTS:
        return [CpuSeed({name: longest(kernel, name) for name in kernel.entries.blocks})]
    if len(along) > 1:
        return [CpuSeed(_square(kernel, along))]
    total = LEAST_ELEMENTS if fact.total is None else fact.total * slab
    elements = min(max(programs_share(kernel, total), LEAST_ELEMENTS), MOST_ELEMENTS)
    sizes = (elements, max(elements // 4, LEAST_ELEMENTS // 4))
    return [CpuSeed(_along_memory(kernel, along, size / slab)) for size in sizes]


def _blocks_along_memory(kernel: TargetedKernel) -> list[str]:
    """Blocks along which tensors of full rank lie; indices and biases are short beside them."""
    facts = [fact for fact in kernel.facts.accesses if not fact.is_scalar]
    tiled = {id(f): {symbol for dim in f.shape for symbol in dim.symbols} for f in facts}
    most = max(map(len, tiled.values()), default=0)
    along = {fact.contiguous_block for fact in facts if len(tiled[id(fact)]) == most}
    return [name for name in kernel.entries.blocks if name in along]


def _along_memory(kernel: TargetedKernel, along: list[str], elements: float) -> dict[str, int]:
    """Runs along memory, then as many of them as there is room for."""
    names = [name for name in reversed(kernel.entries.blocks) if name not in along]
    runs = spread(kernel, along, min(elements, RUN_ELEMENTS))
    length = max(runs.values(), default=1)
    others = spread(kernel, names, elements / length)
    count = max(1, power_of_2_floor(elements / length))
    for size in others.values():
        count = max(1, count // size)
    return {
        **others,
        **{name: min(longest(kernel, name), size * count) for name, size in runs.items()},
    }


def _square(kernel: TargetedKernel, names: list[str]) -> dict[str, int]:
    """Tiles for axes that all run along some tensor's memory: two of them fit the first cache."""
    elements = kernel.target.l1_bytes / (2 * 4)
    side = power_of_2_floor(elements ** (1 / len(names)))
    return {name: min(longest(kernel, name), side) for name in names}
