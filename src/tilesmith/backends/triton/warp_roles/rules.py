"""Configs of the form with warp roles: what they may say, what they need, how long they take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product as combinations
from math import prod
from typing import Any

from typing_extensions import override

from tilesmith.backends.triton.space.conditions import ConfigConditions
from tilesmith.backends.triton.warp_roles.columns.splitting import find_columns
from tilesmith.backends.triton.warp_roles.columns.tiles import (
    TILES,
    RoleSeed,
    column_slot,
    wave_seeds,
)
from tilesmith.backends.triton.warp_roles.edges.operands import (
    GROUP_REGISTERS,
    OTHER_REGISTERS,
    THREADS,
    tiles_in_registers,
)
from tilesmith.backends.triton.warp_roles.edges.walking import GROUPINGS, head_grouping, tile_order
from tilesmith.backends.triton.warp_roles.layouts import WARPS_PER_GROUP
from tilesmith.backends.triton.warp_roles.listed.steps import (
    check_step,
    fitting_step,
    is_cut_short,
)
from tilesmith.backends.triton.warp_roles.order import find_order, find_vectors, least_stages
from tilesmith.backends.triton.warp_roles.plan import Product, RolePlan
from tilesmith.backends.triton.warp_roles.protocol import (
    BARRIER_BYTES,
    LEAST_ROWS,
    MOST_COLUMNS,
    SHARED_BYTES,
    THREE_GROUPS,
    can_share,
    is_compiled_rightly,
)
from tilesmith.exc import InvalidConfig
from tilesmith.ir.ops.memory import Load
from tilesmith.schedule.facts.work import ELEMENTWISE, REDUCTION, TRANSCENDENTAL
from tilesmith.schedule.model.estimates import Device, Limits, Prediction, ResourceUse
from tilesmith.schedule.rules import KernelModel, Seed, TargetedKernel, Values
from tilesmith.schedule.space.fragments import EnumFragment, IntegerFragment
from tilesmith.schedule.space.sizes import KernelSlots, SizeRules, TileSizes, common_lists, only
from tilesmith.schedule.space.slots import Slot
from tilesmith.targets import Target

FORM = "warp_roles"
"""The value of ``structure`` in a Config."""
NARROW = 64
"""Columns of accumulators that leave registers for a third group."""
STAGGERED_REGISTERS = 16
"""The same where a turn has two parts: each needs only what is not counted for the other."""
PRODUCT_SHARE = 0.95
"""Of the matrix units' rate that products reach with others' work between them."""
UNHIDDEN = 0.15
"""Of the shorter of products and arithmetic, which overlap but for the ends of a tile."""
TILE_NS, TURN_NS = 600.0, 10.0
"""Of a tile besides its turns, and of a turn's waits."""


class RoleModel(KernelModel):
    """Rings in shared memory, accumulators in registers; one program on each multiprocessor."""

    def __init__(self, kernel: TargetedKernel, device: Device, plan: RolePlan) -> None:
        super().__init__(kernel, device)
        self._plan = plan
        self._order = find_order(plan)
        self._others = OTHER_REGISTERS if self._order is None else STAGGERED_REGISTERS

    @override
    def resources(self, values: Mapping[str, Any]) -> ResourceUse:
        sizes, groups = self.kernel.sizes(values), values["num_warps"] // WARPS_PER_GROUP
        elements, largest = self.kernel.largest_tile(sizes)
        tiles = (*self._plan.kept, *self._plan.ring)
        return ResourceUse(
            elements,
            largest,
            Limits(self.kernel.rules.sizes.most_elements, GROUP_REGISTERS[groups], SHARED_BYTES),
            registers=self._others + sum(self._held(sizes, groups)),
            largest_resident=self._plan.late[0].dot.result,
            shared_bytes=self._shared_bytes(values["num_stages"], sizes),
            shared_tiles=tuple(load.result for load in tiles),
        )

    def _held(self, sizes: TileSizes, groups: int) -> Iterator[int]:
        """Registers of a thread for each tile that lives through a turn."""
        for shape, bits in tiles_in_registers(self._plan):
            yield sizes.numel(shape) * bits // 32 // (groups * THREADS)

    def _shared_bytes(self, stages: int, sizes: TileSizes) -> int:
        """Of all rings; those of deferred products are shorter where there is no room."""
        plan, order = self._plan, self._order
        ring = (*plan.ring, *find_vectors(plan))
        kept = sum(_num_bytes(load, sizes) for load in plan.kept)
        total = BARRIER_BYTES + kept + stages * sum(_num_bytes(load, sizes) for load in ring)
        if order is None or total <= SHARED_BYTES:
            return total
        deferred = [load for load in ring if not order.is_ahead(load)]
        fewer = stages - order.fewest_deferred(stages)
        return total - fewer * sum(_num_bytes(load, sizes) for load in deferred)

    @override
    def predict(self, values: Mapping[str, Any]) -> Prediction:
        facts, device = self.kernel.facts, self.device
        tiles, turns = self._counts(values)
        waves = -(-tiles // device.num_sms)
        # The last wave leaves multiprocessors idle.
        idle = waves * device.num_sms / max(1, tiles)
        flops = facts.flops or {}
        rates = [count / device.matrix_rate(kind) for kind, count in flops.items()]
        products = sum(rates) / PRODUCT_SHARE
        vector = self._count_operations(ELEMENTWISE, REDUCTION) / device.vector_rate
        vector += self._count_operations(TRANSCENDENTAL) / device.special_rate
        busy = max(products, vector) + UNHIDDEN * min(products, vector)
        compute = (idle * busy + waves * (TILE_NS + turns * TURN_NS)) / 1e6
        memory = (facts.bytes or 0) / device.dram_rate / 1e6
        total = max(compute, memory) + device.launch_ns / 1e6
        limiter = "busy multiprocessors" if compute >= memory else "memory bandwidth"
        return Prediction(total, compute, memory, 0.0, waves, 1.0, limiter)

    def _counts(self, values: Mapping[str, Any]) -> tuple[int, int]:
        """Tiles of the grid, and turns of the loop in each."""
        sizes, outline = self.kernel.sizes(values).symbols, self.kernel.outline
        axes = outline.axes_of(outline.grids[0])
        tiles = prod(-(-(axis.extent or 1) // sizes.get(axis.block, 1)) for axis in axes)
        (loop,) = outline.axes_of(self._plan.tiles)
        return tiles, -(-(loop.extent or 1) // sizes.get(loop.block, 1))

    def _count_operations(self, *kinds: str) -> float:
        counts = [self.kernel.facts.work.operations(kind) or {} for kind in kinds]
        return sum(sum(found.values()) for found in counts)


class WarpRoleRules(ConfigConditions):
    """Rules for one kernel, whose plan is known."""

    backend = "triton"
    form = FORM
    programs = 1  # that share the rows of a tile

    def __init__(self, target: Target, sizes: SizeRules, plan: RolePlan) -> None:
        super().__init__(target)
        self.sizes = sizes
        self.plan = plan

    @override
    def slots(self, kernel: TargetedKernel) -> KernelSlots:
        common = common_lists(kernel.outline, kernel.facts, kernel.entries, self.sizes)
        blocks = [
            self._block_slot(kernel, slot, name)
            for slot, name in zip(common["block_sizes"], kernel.entries.blocks)
        ]
        fixed = {
            key: tuple(replace(slot, search=only(slot.default)) for slot in common[key])
            for key in ("flatten_loops", "reduction_loops")
        }
        groupings = [
            Slot.make(grid.name, EnumFragment(GROUPINGS)) for grid in kernel.entries.grouped
        ]
        lists = {**common, **fixed, "block_sizes": tuple(blocks), "l2_groupings": tuple(groupings)}
        pids = EnumFragment(("flat", "persistent_interleaved"))
        scalars = {
            "num_warps": Slot.make("num_warps", EnumFragment((8, 4, 12))),
            "num_stages": Slot.make("num_stages", IntegerFragment(1, 6, 2)),
            "pid_type": Slot.make("pid_type", pids),
        }
        return KernelSlots(lists, scalars)

    def _block_slot(self, kernel: TargetedKernel, slot: Slot, name: str) -> Slot:
        """Rows come in groups of 64, axes beside the products in single steps."""
        if name == self.plan.rows:
            sizes = EnumFragment(tuple(self.programs * rows for rows in (64, 128, 192, 256)))
            return Slot(name, sizes, sizes, self.programs * 128)
        sides = self.plan.sides
        if name not in sides:
            return Slot(name, slot.valid, only(1), 1)
        choices = [size for size in (16, 32, 64, 128, 256) if kernel.minimum(name) <= size]
        whole = max(choices[0], kernel.whole(name))
        usable = tuple(size for size in choices if size <= whole)
        if name == find_columns(self.plan):
            return column_slot(name, choices, whole)
        return Slot(name, slot.valid, EnumFragment(usable), usable[-1])

    @override
    def check_launch(self, kernel: TargetedKernel, values: Mapping[str, Any]) -> None:
        sizes = dict(zip(kernel.entries.blocks, values["block_sizes"]))
        groups = values["num_warps"] // WARPS_PER_GROUP
        rows = kernel.sizes(values).symbols[self.plan.rows] // self.programs
        if not can_share(rows, groups):
            raise InvalidConfig(
                problem=f"{groups} groups of warps with {rows} rows of {self.plan.rows}",
                expected=f"{LEAST_ROWS} or {2 * LEAST_ROWS} rows for each group of four warps",
                fix=f"a block size of {LEAST_ROWS * groups}, or other num_warps (4 for a group)",
            )
        least = least_stages(self.plan)
        if values["num_stages"] < least:
            raise InvalidConfig(
                problem=f"num_stages={values['num_stages']}",
                expected=f"{least} or more: products of two turns read one ring of tiles",
                fix=f"num_stages={least}",
            )
        if not is_compiled_rightly(groups, values["num_stages"]):
            raise InvalidConfig(
                problem=f"num_stages={values['num_stages']} with {groups} groups of warps",
                expected="3, 5 or 6 stages: the assembler makes wrong code of other numbers",
                fix="another num_stages, or num_warps=8",
            )
        step = sizes.get(self.plan.loop.blocks[0], 1)
        check_step(kernel, self.plan, rows, step)
        for name, size in sizes.items():
            if name not in self.plan.sides and size != 1:
                raise InvalidConfig(
                    problem=f"a block size of {size} for {name}",
                    expected=f'structure="{FORM}" needs 1 for axes beside the products',
                    fix=f"1 for {name}",
                )
        use = self.model(kernel).resources(values)
        if not use.fits_registers:
            raise InvalidConfig(
                problem=f"{use.registers} registers for each thread of {groups} groups of warps",
                expected=f"{use.limits.registers} at most: a group cannot borrow any",
                fix="smaller block_sizes, or fewer num_warps",
            )

    @override
    def relax(self, kernel: TargetedKernel, values: Values) -> Values:
        sides = self.plan.sides
        named = zip(kernel.entries.blocks, values["block_sizes"])
        values["block_sizes"] = [size if name in sides else 1 for name, size in named]
        groups = values["num_warps"] // WARPS_PER_GROUP
        rows = kernel.sizes(values).symbols[self.plan.rows] // self.programs
        if self.plan.loop.blocks[0] in kernel.entries.blocks:
            step = kernel.entries.blocks.index(self.plan.loop.blocks[0])
            size = values["block_sizes"][step]
            values["block_sizes"][step] = fitting_step(kernel, self.plan, rows, size)
        values["num_stages"] = max(values["num_stages"], least_stages(self.plan))
        if not can_share(rows, groups):
            groups = {192: 3, 256: 2}.get(rows, 1)
            values["num_warps"] = groups * WARPS_PER_GROUP
        if not is_compiled_rightly(groups, values["num_stages"]):
            values["num_stages"] = THREE_GROUPS
        return values

    @override
    def lighten(
        self, kernel: TargetedKernel, values: Values, use: ResourceUse
    ) -> Iterator[Values | None]:
        if not use.fits_registers:
            yield self._with_fewer_rows(kernel, values)
        least = least_stages(self.plan)
        has_three = values["num_warps"] == THREE_GROUPS * WARPS_PER_GROUP
        if not use.fits_shared and values["num_stages"] > (THREE_GROUPS if has_three else 2):
            yield {**values, "num_stages": values["num_stages"] - 1}
        dims = [dim for value in use.shared_tiles for dim in value.tile.shape]
        columns = tuple(dim for dim in dims if dim.symbol not in (None, self.plan.rows))
        yield kernel.halve_block(values, columns)
        yield {**values, "num_stages": least} if values["num_stages"] > least else None

    def _with_fewer_rows(self, kernel: TargetedKernel, values: Values) -> Values | None:
        """Groups of one matrix instruction's rows; two groups instead of three."""
        groups = values["num_warps"] // WARPS_PER_GROUP
        rows = kernel.sizes(values).symbols[self.plan.rows] // self.programs
        if self.plan.rows not in kernel.entries.blocks:
            return None
        if rows == groups * LEAST_ROWS:
            groups -= groups == THREE_GROUPS
        if rows == groups * LEAST_ROWS:
            return None
        sizes = list(values["block_sizes"])
        sizes[kernel.entries.blocks.index(self.plan.rows)] = groups * LEAST_ROWS * self.programs
        return self.relax(
            kernel, {**values, "block_sizes": sizes, "num_warps": groups * WARPS_PER_GROUP}
        )

    @override
    def model(self, kernel: TargetedKernel) -> KernelModel:
        return RoleModel(kernel, self.device(), self.plan)

    @override
    def seeds(self, kernel: TargetedKernel) -> tuple[str, Sequence[Seed]]:
        model = self.model(kernel)
        filling = wave_seeds(kernel, self.plan, TILES)
        fitting = [seed for seed in filling if model.resources(seed.values(kernel)).fits]
        found = [*fitting, *self._tiles(kernel)]
        return "measured order", [s for s in found if _is_taken(self, self.plan, kernel, s)]

    def _tiles(self, kernel: TargetedKernel) -> Iterator[RoleSeed]:
        """Tiles that fit, those first that were fastest on an H200.

        Wide steps of the loop beat many stages; a third group pays where accumulators are narrow
        and all tiles have the same length. Programs walk tiles where the next one's kept operands
        fit beside those of this one; where turns have two parts, if all tiles have one length, or
        all turns of wide ones share a loop.
        """
        is_narrow = all(_columns(kernel, p) <= NARROW for p in self.plan.late)
        is_even, is_staggered = not self.plan.is_uneven, find_order(self.plan) is not None
        # Three groups have no registers left to clear the rest of a tile with.
        has_three = is_narrow and is_even and not is_cut_short(kernel, self.plan, 128)
        groups = (2,) if is_staggered else (3, 2) if has_three else (2, 3)
        depths = (3, 2, 5, 1) if has_three else (2, 3, 5, 1)
        depths = (2, 3) if is_staggered else depths
        model = self.model(kernel)
        may_walk = is_even or (not is_narrow and bool(find_vectors(self.plan)))
        # Turns of two parts: room for the next tile's operands is worth more than wide steps.
        ways = (True, False) if is_staggered and may_walk else (False,)
        # Where ends are not known, two groups have none either for wide tiles.
        steps = (128, 64, 32)[is_cut_short(kernel, self.plan, 0) :]
        for is_looped, size, number, stages in combinations(ways, steps, groups, depths):
            blocks = self._blocks(kernel, number * LEAST_ROWS, size)
            seed = RoleSeed(blocks, number, stages, tile_order(kernel, self.plan))
            use = model.resources(seed.values(kernel))
            if use.fits and is_compiled_rightly(number, stages):
                sizes = kernel.sizes(seed.values(kernel))
                kept = sum(_num_bytes(load, sizes) for load in self.plan.kept)
                has_room = use.shared_bytes + kept <= SHARED_BYTES
                if has_room or not is_looped:
                    walks = is_looped or (not is_staggered and has_room)
                    yield seed if walks else _of_one_tile(kernel, self.plan, seed)

    def _blocks(self, kernel: TargetedKernel, rows: int, size: int) -> dict[str, int]:
        """Sizes of all sides of products; sums without products before them need short steps."""
        (loop,) = kernel.outline.axes_of(self.plan.tiles)
        sides = [name for name in self.plan.sides if name in kernel.entries.blocks]
        blocks = {name: min(size, kernel.whole(name)) for name in sides}
        if not self.plan.early and loop.block in blocks:
            blocks[loop.block] = min(64, blocks[loop.block])
        return {**blocks, self.plan.rows: rows}


def _is_taken(rules: WarpRoleRules, plan: RolePlan, kernel: TargetedKernel, seed: Seed) -> bool:
    """Whether sides that the source fixes or bounds leave a launch of these groups."""
    values = rules.relax(kernel, dict(seed.values(kernel)))
    rows = kernel.outline.function.block(plan.rows)
    try:
        rules.check_launch(kernel, values)
    except InvalidConfig:
        return False
    return rows.high is None or kernel.sizes(values).symbols[rows.name] <= rows.high


def _columns(kernel: TargetedKernel, product: Product) -> int:
    dim = product.dot.result.tile.shape[-1]
    return dim.constant or min(MOST_COLUMNS, kernel.whole(str(dim.symbol)))


def _of_one_tile(kernel: TargetedKernel, plan: RolePlan, seed: RoleSeed) -> RoleSeed:
    """The same for programs of one tile: heads side by side, where tiles differ in length."""
    single = replace(seed, is_persistent=False)
    if not plan.is_uneven or plan.branch is not None:
        return single
    (grid,) = kernel.outline.grids
    order = tuple(range(len(grid.blocks)))
    return replace(single, order=order, grouping=head_grouping(kernel, plan))


def _num_bytes(load: Load, sizes: TileSizes) -> int:
    return sizes.numel(load.result.tile.shape) * load.result.tile.dtype.itemsize
