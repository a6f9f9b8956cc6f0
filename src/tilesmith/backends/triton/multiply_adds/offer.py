"""Exact products of fp32: tiles where an operand lies across, and configs of the form with roles.

Lanes that read an operand along the sum meet in one bank of shared memory, the more the deeper a
tile is, and a larger tile of the result reads less. ms on an H200, 4096^3, tiles of 64x64x32 (four
warps) / 128x128x16 (four warps, two programs on a multiprocessor), cuBLAS: right operand along the
sum 9.79 / 5.52, 2.71; both the other way round 9.83 / 4.85, 2.79; left operand across 2.89 / 2.77,
2.65. With both as they are usually stored 2.97 / more than 3.03, 2.69.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from typing_extensions import override

from tilesmith.backends.triton.heuristics import measured_tiles as measured
from tilesmith.backends.triton.heuristics.exact_products import (
    PROGRAMS,
    SIDE,
    fills_waves,
    is_faster_with_roles,
    operand_dims,
)
from tilesmith.backends.triton.heuristics.matmul import matmul_seeds
from tilesmith.backends.triton.heuristics.seed import GpuSeed
from tilesmith.backends.triton.heuristics.tile_sides import sized
from tilesmith.backends.triton.multiply_adds.functions import LANES
from tilesmith.backends.triton.multiply_adds.plan import plan_product
from tilesmith.backends.triton.space.conditions import ConfigConditions
from tilesmith.backends.triton.warp_roles.columns.tiles import RoleSeed
from tilesmith.backends.triton.warp_roles.copies import find_narrow_side
from tilesmith.backends.triton.warp_roles.layouts import WARPS_PER_GROUP
from tilesmith.backends.triton.warp_roles.protocol import SHARED_BYTES
from tilesmith.backends.triton.warp_roles.refusals import Refusal
from tilesmith.backends.triton.warp_roles.rules import RoleModel, WarpRoleRules
from tilesmith.exc import InvalidConfig
from tilesmith.ir.types import Dim
from tilesmith.schedule.facts.accesses import AccessFact
from tilesmith.schedule.facts.products import MatmulFact
from tilesmith.schedule.model.estimates import ResourceUse
from tilesmith.schedule.rules import KernelModel, ScheduleRules, Seed, TargetedKernel, Values
from tilesmith.schedule.space.fragments import EnumFragment, IntegerFragment
from tilesmith.schedule.space.sizes import KernelSlots, SizeRules, common_lists, only
from tilesmith.schedule.space.slots import Slot
from tilesmith.targets import Target

HOPPER = 90
WORD_BYTES = 4
ACROSS_DEPTH, WARPS, ACROSS_STAGES = 16, 4, 3
MULTIPLY_ADDS = "multiply_add_roles"
"""The value of ``structure`` in a Config."""
TILE, DEPTH, STAGES, GROUPING = 128, 32, 3, 8


def exact_product(kernel: TargetedKernel) -> MatmulFact | None:
    """The only product, if it is one of fp32 without matrix units on Hopper."""
    target = kernel.target
    if target.kind != "cuda" or target.capability != HOPPER or len(kernel.facts.matmuls) != 1:
        return None
    (fact,) = kernel.facts.matmuls
    has_words = fact.lhs_dtype.itemsize == fact.rhs_dtype.itemsize == WORD_BYTES
    return fact if has_words and not fact.uses_tensor_cores else None


def across_seeds(kernel: TargetedKernel) -> list[GpuSeed]:
    """Seeds of a product of which an operand lies across; else nothing."""
    fact = exact_product(kernel)
    if fact is None:
        return []
    stepped = {block for loop in kernel.outline.loops for block in loop.blocks}
    free = set(kernel.entries.blocks)
    if not {fact.m.block, fact.n.block} <= free - stepped or fact.k.block not in free:
        return []
    along = operand_dims(kernel)
    if along.get("lhs") == fact.k.dim and along.get("rhs") == fact.n.dim:
        return []
    if not fills_waves(kernel, fact):
        return []
    blocks = sized((fact.m, SIDE), (fact.n, SIDE), (fact.k, ACROSS_DEPTH))
    fastest = (fact.m.block, fact.n.block)
    return [GpuSeed(blocks, WARPS, ACROSS_STAGES, measured.GROUPING, fastest=fastest)]


def product_seeds(kernel: TargetedKernel) -> list[GpuSeed]:
    """Seeds of the main product of a kernel."""
    return [*across_seeds(kernel), *matmul_seeds(kernel)]


class MultiplyAddModel(RoleModel):
    """One of two programs on a multiprocessor."""

    @override
    def resources(self, values: Mapping[str, Any]) -> ResourceUse:
        use = super().resources(values)
        return replace(use, shared_bytes=PROGRAMS * use.shared_bytes)


class MultiplyAddRules(WarpRoleRules):
    """Rules for one product."""

    form = MULTIPLY_ADDS

    @override
    def slots(self, kernel: TargetedKernel) -> KernelSlots:
        common = common_lists(kernel.outline, kernel.facts, kernel.entries, self.sizes)
        blocks = [
            self._sides(kernel, slot, name)
            for slot, name in zip(common["block_sizes"], kernel.entries.blocks)
        ]
        fixed = {
            key: tuple(replace(slot, search=only(slot.default)) for slot in common[key])
            for key in ("flatten_loops", "reduction_loops")
        }
        groupings = [
            Slot.make(grid.name, EnumFragment((1, 2, 4, 8, 16))) for grid in kernel.entries.grouped
        ]
        scalars = {
            "num_warps": Slot.make("num_warps", EnumFragment((WARPS_PER_GROUP,))),
            "num_stages": Slot.make("num_stages", IntegerFragment(2, 6, STAGES)),
            "pid_type": Slot.make("pid_type", EnumFragment(("flat",))),
        }
        lists = {**common, **fixed, "block_sizes": tuple(blocks), "l2_groupings": tuple(groupings)}
        return KernelSlots(lists, scalars)

    def _sides(self, kernel: TargetedKernel, slot: Slot, name: str) -> Slot:
        (loop,) = kernel.outline.axes_of(self.plan.loop)
        sizes = (16, DEPTH, 64) if name == loop.block else (64, TILE)
        chosen = EnumFragment(sizes)
        if name not in self.plan.sides:
            return Slot(name, slot.valid, only(1), 1)
        return Slot(name, chosen, chosen, DEPTH if name == loop.block else TILE)

    @override
    def check_launch(self, kernel: TargetedKernel, values: Mapping[str, Any]) -> None:
        use = self.model(kernel).resources(values)
        if not use.fits_shared:
            raise InvalidConfig(
                problem=f"{use.shared_bytes} bytes of shared memory for {PROGRAMS} programs",
                expected=f"{SHARED_BYTES} at most",
                fix="fewer num_stages, or smaller block_sizes",
            )

    @override
    def relax(self, kernel: TargetedKernel, values: Values) -> Values:
        return values

    @override
    def model(self, kernel: TargetedKernel) -> KernelModel:
        return MultiplyAddModel(kernel, self.device(), self.plan)

    @override
    def seeds(self, kernel: TargetedKernel) -> tuple[str, Sequence[Seed]]:
        (fact,) = kernel.facts.matmuls
        (grid,) = kernel.outline.grids
        blocks = {fact.m.block: TILE, fact.n.block: TILE, fact.k.block: DEPTH}
        named = {name: size for name, size in blocks.items() if name is not None}
        order = tuple(range(len(grid.blocks)))
        return "measured", [RoleSeed(named, 1, STAGES, order, GROUPING, is_persistent=False)]


def find_rules(
    target: Target, sizes: SizeRules, kernel: TargetedKernel
) -> MultiplyAddRules | Refusal | None:
    """Rules of a kernel in this form, or why it has none; None where nobody would expect them."""
    fact = exact_product(kernel)
    if fact is None:
        return None
    plan = plan_product(kernel.outline.function)
    if isinstance(plan, Refusal):
        return plan
    if any(axis.block not in kernel.entries.blocks for axis in fact.axes):
        return Refusal("a side of its tiles is fixed", plan.loop.loc)
    if len(plan.grid.blocks) != len(LANES) or kernel.outline.function.sizes:
        return Refusal("its grid is not that of a matrix of known tiles", plan.grid.loc)
    narrow = find_narrow_side(kernel, plan)
    if narrow is not None:
        return narrow
    depth = Dim.of(fact.k.block or "")
    for item in kernel.facts.accesses:
        if item.kind == "load" and item.purpose.sides and not _is_brought(item, depth):
            return Refusal("an operand lies along no axis of the product", plan.loop.loc)
    return MultiplyAddRules(target, sizes, plan)


def _is_brought(item: AccessFact, depth: Dim) -> bool:
    """Whether the copy engine brings it, or threads one by one."""
    if len(item.strides) != len(LANES) or not all(isinstance(s, int) for s in item.strides):
        return False
    return item.contiguous_dim == depth or item.fits_descriptor


class MultiplyAddOffers(ConfigConditions):
    """Multiply-adds by warps with roles, besides what comes after in the order of classes."""

    @override
    def other_ways(self, kernel: TargetedKernel) -> Mapping[str, ScheduleRules]:
        ways, rules = super().other_ways(kernel), find_rules(self.target, self.sizes, kernel)
        return {**ways, MULTIPLY_ADDS: rules} if isinstance(rules, MultiplyAddRules) else ways

    @override
    def missing_ways(self, kernel: TargetedKernel) -> Mapping[str, str]:
        missing, rules = super().missing_ways(kernel), find_rules(self.target, self.sizes, kernel)
        return {**missing, MULTIPLY_ADDS: str(rules)} if isinstance(rules, Refusal) else missing

    @override
    def may_be_first_form(self, name: str, kernel: TargetedKernel) -> bool:
        if name != MULTIPLY_ADDS:
            return super().may_be_first_form(name, kernel)
        fact = exact_product(kernel)
        return fact is not None and is_faster_with_roles(kernel, fact)

    @override
    def least_gain(self, name: str) -> float:
        """Predictions know nothing of registers and banks."""
        return 0.0 if name == MULTIPLY_ADDS else super().least_gain(name)
