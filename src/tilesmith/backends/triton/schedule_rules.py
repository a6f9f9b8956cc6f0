"""What the Triton backend decides about schedules: sizes, keys, resources, times, heuristics.

Seeds around what a heuristic says vary tiles, warps and stages in steps of two. Which axes are
stepped through depends on the facts; everything else stays as in the first seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import product, zip_longest
from math import prod

from typing_extensions import override

from tilesmith.backends.triton.heuristics import (
    chained_matmul,
    memory_bound,
    several_grids,
    shared_rows,
    shared_sums,
)
from tilesmith.backends.triton.heuristics import grouped_products as groups
from tilesmith.backends.triton.heuristics import narrow_products as narrow
from tilesmith.backends.triton.heuristics import product_loops as loops
from tilesmith.backends.triton.heuristics.alone_products import walked_product_seeds
from tilesmith.backends.triton.heuristics.column_parts import beside_column_sums
from tilesmith.backends.triton.heuristics.long_rows import joined_row_seeds, several_row_seeds
from tilesmith.backends.triton.heuristics.matmul import main_product
from tilesmith.backends.triton.heuristics.pair_products import PairForms, few_row_seeds
from tilesmith.backends.triton.heuristics.row_launches import RowLaunchForms
from tilesmith.backends.triton.heuristics.seed import GpuSeed, copied
from tilesmith.backends.triton.merged_groups import MergedGroupForms, merged_seeds
from tilesmith.backends.triton.model.time_model import GpuModel
from tilesmith.backends.triton.multiply_adds import offer as multiply_adds
from tilesmith.backends.triton.role_clusters.offer import ClusterOffers
from tilesmith.backends.triton.space.slots import list_slots, scalar_slots
from tilesmith.backends.triton.warp_roles.offer import RoleOffers
from tilesmith.ir.types import Dim, next_power_of_2
from tilesmith.schedule.facts.extents import Axis
from tilesmith.schedule.facts.products import MatmulFact
from tilesmith.schedule.rules import Seed, TargetedKernel, first_answer
from tilesmith.schedule.space.sizes import (
    MAX_SEARCHED_BLOCK,
    KernelSlots,
    SizeRules,
    power_of_2_floor,
)
from tilesmith.schedule.spread import SpreadForms
from tilesmith.targets import Target

MAX_TILE_ELEMENTS = 1 << 20
"""The most elements that Triton allows in one tile."""
PROGRAMS_PER_SM = 64
"""More than these for each multiprocessor are far more than it can keep busy."""
SIDES, DEPTHS = (16, 32, 64, 128, 256), (16, 32, 64, 128)
MOST_TILE, LEAST_TILE = 256 * 256, 1024


def _candidates(kernel: TargetedKernel, seed: GpuSeed) -> Iterator[GpuSeed]:
    """Seeds around what the facts suggest, without repetitions of the kind of loop order."""
    facts = kernel.facts
    if facts.attention is not None:
        scores = facts.attention.scores
        yield from _tiled(kernel, seed, _axes(kernel, (scores.m, scores.n)), (1, 2, 3, 4))
    elif facts.epilogue is not None:
        matmul = facts.epilogue.matmul
        warps = (4, 8, 16)
        for tile in _tiled(kernel, seed, _axes(kernel, (matmul.m,)), (1, 2, 3, 4), warps):
            yield from _with_depths(kernel, tile, matmul)
    elif facts.matmuls:
        matmul = main_product(facts.matmuls)
        for tile in _tiled(kernel, seed, _axes(kernel, (matmul.m, matmul.n)), (2, 3, 4, 5)):
            yield from _with_depths(kernel, tile, matmul)
    elif facts.reductions:
        yield from _reductions(kernel, seed)
    else:
        yield from _elementwise(kernel, seed)


def _several_grids_candidates(seed: several_grids.SeveralGridsSeed) -> Iterator[Seed]:
    """Seeds around that of each top-level loop, in turn, the other loops as they are."""
    series = [
        [seed.with_seed(i, found) for found in _candidates(part.kernel, part.seed)]
        for i, part in enumerate(seed.parts)
    ]
    for found in zip_longest(*series):
        yield from (one for one in found if one is not None)


def _axes(kernel: TargetedKernel, axes: Sequence[Axis]) -> list[str]:
    return [axis.block for axis in axes if axis.block in kernel.entries.blocks]


def _sides(kernel: TargetedKernel, name: str) -> list[int]:
    whole = max(16, kernel.whole(name))
    return [size for size in SIDES if kernel.minimum(name) <= size <= whole] or [whole]


def _warps(kernel: TargetedKernel, tile: int) -> tuple[int, ...]:
    if kernel.target.kind == "hip":
        return (4, 8)
    if tile <= 4096:
        return (2, 4)
    has_words = any(fact.itemsize == 4 for fact in kernel.facts.matmuls)
    return (2, 4, 8) if has_words else (4, 8)


def _tiled(
    kernel: TargetedKernel,
    seed: GpuSeed,
    names: list[str],
    stages: Sequence[int],
    warps: Sequence[int] = (),
) -> Iterator[GpuSeed]:
    """Sizes of the sides of a product, warps and stages."""
    for sides in product(*(_sides(kernel, name) for name in names)):
        tile = prod(sides)
        if len(sides) > 1 and not LEAST_TILE <= tile <= MOST_TILE // 2:
            continue
        blocks = {**seed.blocks, **dict(zip(names, sides))}
        for num_warps, num_stages in product(warps or _warps(kernel, tile), stages):
            yield replace(seed, blocks=blocks, num_warps=num_warps, num_stages=num_stages)


def _with_depths(kernel: TargetedKernel, seed: GpuSeed, matmul: MatmulFact) -> Iterator[GpuSeed]:
    """The same tile with every K block; deep ones need few stages."""
    name = matmul.k.block
    if name is None or name not in kernel.entries.blocks:
        yield seed
        return
    whole = kernel.whole(name)
    for depth in DEPTHS:
        if matmul.min_k <= depth <= whole and depth * seed.num_stages <= 512:
            yield replace(seed, blocks={**seed.blocks, name: depth})


def _reductions(kernel: TargetedKernel, seed: GpuSeed) -> Iterator[GpuSeed]:
    """Rows of each program, chunks of a row, tiles of loops inside, and warps."""
    grid = [n for n in kernel.entries.blocks if n in kernel.outline.grid_blocks][-1:]
    inner = list(kernel.loop_blocks)[-1:]
    names = [*grid, *inner]
    sizes = [
        [min(1 << e, kernel.whole(name)) for e in (range(5) if name in grid else range(9, 14))]
        for name in names
    ]
    for blocks in dict.fromkeys(product(*sizes)):
        for chunk, num_warps in product(_chunks(kernel), (1, 2, 4, 8, 16, 32)):
            chosen = {**seed.blocks, **dict(zip(names, blocks))}
            yield replace(seed, blocks=chosen, num_warps=num_warps, chunks=chunk)


def _chunks(kernel: TargetedKernel) -> list[dict[Dim, int]]:
    rolled = kernel.entries.rolled
    if not rolled:
        return [{}]
    longest_row = max(kernel.outline.extent(dim) or 1 for dim in rolled)
    sizes = [size for size in (1024, 4096, 16384) if 2 * size <= next_power_of_2(longest_row)]
    return [{}, *(dict.fromkeys(rolled, size) for size in sizes)]


def _elementwise(kernel: TargetedKernel, seed: GpuSeed) -> Iterator[GpuSeed]:
    for exponent, num_warps in product(range(7, 15), (1, 2, 4, 8)):
        blocks = memory_bound.spread_elements(kernel, 1 << exponent)
        yield replace(seed, blocks={**seed.blocks, **blocks}, num_warps=num_warps)


def _variants(kernel: TargetedKernel, seed: GpuSeed) -> Iterator[GpuSeed]:
    """A good tile with other orders of programs, and with descriptors for its operands."""
    for grouping in (1, 2, 4, 8) if kernel.entries.grouped else (1,):
        yield replace(seed, l2_grouping=grouping)
    if kernel.target.has_tensor_descriptors:
        by_copies = copied(kernel, lambda fact: fact.kind == "load")
        if "tensor_descriptor" in by_copies["indexing"]:
            yield replace(seed, options={**seed.options, **by_copies})


HEURISTICS: tuple[tuple[str, Callable[[TargetedKernel], Sequence[GpuSeed]]], ...] = (
    ("rows that programs share", shared_rows.shared_rows_seeds),
    ("product whose programs exchange sums", several_grids.exchange_seeds),
    ("product of a panel, then its rows", several_grids.panel_seeds),
    ("matmul with reduction epilogue", chained_matmul.reduction_epilogue_seeds),
    ("attention with more products", chained_matmul.attention_gradient_seeds),
    ("attention of ragged sequences", loops.ragged_attention_seeds),
    ("attention", chained_matmul.attention_seeds),
    ("products of merged groups", merged_seeds),
    ("products of groups", groups.group_seeds),
    ("product of several loops", loops.several_loop_seeds),
    ("product of one column", narrow.one_column_seeds),
    ("few rows by converted weights", few_row_seeds),
    ("product, then rows by it", walked_product_seeds),
    ("matmul", multiply_adds.product_seeds),
    ("rows of several tensors", several_row_seeds),
    ("rows walked once", joined_row_seeds),
    ("reduction", memory_bound.reduction_seeds),
    ("pointwise", memory_bound.pointwise_seeds),
)
"""The first that answers gives the default; more specific ones come first."""


def _seeds_of_one(kernel: TargetedKernel) -> Sequence[GpuSeed]:
    return first_answer(HEURISTICS, kernel)[1]


def _plain_block(num_blocks: int, slab: int) -> int:
    if num_blocks <= 2 and slab <= 128:
        return 32
    if num_blocks >= 3 and slab > 1:
        return power_of_2_floor((32768 / slab) ** (1 / num_blocks))
    return 16 if slab <= 256 else 1


class TritonRules(
    multiply_adds.MultiplyAddOffers,
    ClusterOffers,
    RoleOffers,
    shared_sums.SharedSumForms,
    MergedGroupForms,
    SpreadForms,
    RowLaunchForms,
    PairForms,
):
    """Sides of tiles are powers of two; those of products are 16 or more."""

    backend = "triton"
    option_keys = ("waves_per_eu", "matrix_instr_nonkdim", "xcd_remap")
    model_type = GpuModel
    has_row_forms = True
    groups_per_core = groups.MOST_GROUPS_PER_SM

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self.sizes = SizeRules(
            most_elements=MAX_TILE_ELEMENTS,
            is_padded=True,
            least_dot_side=16,
            largest_block=MAX_SEARCHED_BLOCK,
            least_searched_dot_side=64,
            most_programs=PROGRAMS_PER_SM * target.num_sms,
            chunks=tuple(1 << e for e in range(6, 15)),
            plain_block=_plain_block,
        )

    @override
    def slots(self, kernel: TargetedKernel) -> KernelSlots:
        return KernelSlots(list_slots(kernel), scalar_slots(kernel))

    @override
    def seeds(self, kernel: TargetedKernel) -> tuple[str, Sequence[Seed]]:
        if len(kernel.outline.grids) <= 1:
            return first_answer(HEURISTICS, kernel)
        split = several_grids.two_phase_seeds(kernel, _seeds_of_one)
        if split:
            return "product, then its rows", split
        several = several_grids.several_grids_seeds(kernel, _seeds_of_one)
        return "each loop", beside_column_sums(
            kernel, shared_sums.shared_sum_seeds(kernel, several)
        )

    @override
    def candidates(self, kernel: TargetedKernel, first: Seed | None) -> Iterable[Seed]:
        if isinstance(first, several_grids.SeveralGridsSeed):
            return _several_grids_candidates(first)
        return _candidates(kernel, first if isinstance(first, GpuSeed) else GpuSeed({}))

    @override
    def variants(self, kernel: TargetedKernel, seed: Seed) -> Iterable[Seed]:
        return _variants(kernel, seed) if isinstance(seed, GpuSeed) else ()
