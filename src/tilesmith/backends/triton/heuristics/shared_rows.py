"""Which kernels get forms in which programs share rows, and the parts that programs take."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import override

from tilesmith.backends.triton.heuristics.seed import GpuSeed
from tilesmith.ir.ops.control_flow import LEAST_SMS_FOR_GROUPS, If
from tilesmith.ir.types import next_power_of_2
from tilesmith.schedule.facts.outline import counted_block
from tilesmith.schedule.rules import ScheduleRules, TargetedKernel
from tilesmith.schedule.space.sizes import power_of_2_floor

TWO_PHASES, LAST_REDUCES, EXCHANGE = PRODUCT_FORMS = ("two_phases", "last_reduces", "exchange")
LOADED_FORMS = (ROW_PARTS := "row_parts", EXCHANGE)
LEAST_GAIN = 1.2
"""Of parts that the last program puts together, which cost less than the model thinks: of losses
with 1.2 to 1.35 promised, kl_div of 64x128256 and of 8x32000 gained 1.44 and 1.25 (H200)."""
MOST_ROWS_PER_SM = 4
"""With more rows than these for each multiprocessor all are busy anyway."""
LEAST_ROW = 2048
"""Columns: shorter rows are read in less time than programs take to meet."""
PARTS_PER_SM = 2
LEAST_PART, MOST_PART, MOST_KEPT_PART = 1024, 8192, 4096
"""Columns of a part that is reduced, and of one that is kept.

On an H200, us, parts of 2048/4096/8192/16384 with the best of 4, 8, 16 warps: sum of 8x128256 8.5,
8.5, 8.5, 8.8; cross entropy of 64x128256 18.5, 18.8, 18.4, 17.9; softmax of it (kept) 27.1, 26.5,
27.2, 30.5; kl_div of 64x1048576, walked, from 4096 on 146, 141, 139.
"""
TURN = 2048
"""Columns that a loop takes at a time."""
LEAST_WARPS, MOST_WARPS, LANES, MOST_PER_THREAD = 4, 8, 512, 32
"""A warp for each 512 columns, unless a thread would have more than it can hold."""


class RowForms(ScheduleRules):
    """Forms in which programs share rows, and when they are defaults."""

    @override
    def row_forms(self, kernel: TargetedKernel) -> Sequence[str]:
        """Those that a kernel may have, if the passes find it to be of that kind."""
        # Programs that wait must leave room for those they wait for.
        has_room = self.target.num_sms >= LEAST_SMS_FOR_GROUPS
        return [name for name in _forms(kernel) if name != EXCHANGE or has_room]

    @override
    def may_be_first_form(self, name: str, kernel: TargetedKernel) -> bool:
        """An exchange may be a default where it was seen to run and to gain.

        That is on NVIDIA devices, for loaded rows, for products of 16-bit types, and of fp32
        without matrix units.
        """
        if name != EXCHANGE:
            return super().may_be_first_form(name, kernel)
        products = kernel.facts.matmuls
        is_known = all(f.itemsize == (2 if f.uses_tensor_cores else 4) for f in products)
        return self.target.kind == "cuda" and is_known

    @override
    def least_gain(self, name: str) -> float:
        return LEAST_GAIN if name == ROW_PARTS else super().least_gain(name)


def _forms(kernel: TargetedKernel) -> Sequence[str]:
    facts, outline = kernel.facts, kernel.outline
    if facts.epilogue is not None:
        return PRODUCT_FORMS
    if facts.matmuls or not facts.reductions or len(outline.grids) != 1:
        return ()
    extents = [axis.extent for axis in outline.axes_of(outline.grids[0])]
    longest = max(fact.axis.extent_or(0) for fact in facts.reductions)
    rows = extents[0] if len(extents) == 1 else None
    has_few = rows is not None and rows <= MOST_ROWS_PER_SM * kernel.target.num_sms
    return LOADED_FORMS if has_few and longest >= LEAST_ROW else ()


def shared_rows_seeds(kernel: TargetedKernel) -> list[GpuSeed]:
    """Parts that keep all multiprocessors busy; nothing for kernels of another kind."""
    outline, facts = kernel.outline, kernel.facts
    if facts.matmuls or len(outline.grids) != 1 or len(outline.grids[0].blocks) != 2:
        return []
    if not outline.group_barriers and not is_counted(kernel):
        return []
    columns, rows = outline.grids[0].blocks
    elements = kernel.extent(columns) * kernel.extent(rows)
    is_kept = bool(outline.group_barriers)
    most = MOST_KEPT_PART if is_kept else MOST_PART
    share = power_of_2_floor(elements / (PARTS_PER_SM * kernel.target.num_sms))
    part = next_power_of_2(max(LEAST_PART, min(most, share), kernel.minimum(columns)))
    sizes = [part, 2 * part, max(LEAST_PART, part // 2)]
    return [_seed(kernel, {columns: size, rows: 1}, size) for size in sizes]


def _seed(kernel: TargetedKernel, blocks: dict[str, int], part: int) -> GpuSeed:
    turn = min(part, TURN) if kernel.loop_blocks else part
    per_warp = kernel.target.warp_size * MOST_PER_THREAD
    most = LEAST_WARPS if kernel.outline.group_barriers else MOST_WARPS
    warps = max(LEAST_WARPS, min(most, turn // LANES), turn // per_warp)
    return GpuSeed({**blocks, **dict.fromkeys(kernel.loop_blocks, turn)}, warps)


def is_counted(kernel: TargetedKernel) -> bool:
    """Whether the last of the programs that share a tile does more than the others."""
    outline = kernel.outline
    return any(counted_block(outline, branch.condition) for branch in outline.ops(If))
