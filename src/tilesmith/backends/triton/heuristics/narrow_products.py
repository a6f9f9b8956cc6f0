"""Products with few rows or columns, or with an operand that is converted: forms and tiles.

Microseconds are of an H200, bf16.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from typing_extensions import override

from tilesmith.analysis.converted_operands import find_converted_operand
from tilesmith.backends.triton.heuristics.matmul import main_product, matmul_seeds
from tilesmith.backends.triton.heuristics.seed import GpuSeed
from tilesmith.backends.triton.heuristics.shared_rows import RowForms
from tilesmith.backends.triton.heuristics.tile_sides import sized
from tilesmith.ir.types import next_power_of_2
from tilesmith.schedule.rules import TargetedKernel
from tilesmith.schedule.space.sizes import power_of_2_floor

AHEAD_FORMS = (CONVERTED_AHEAD, CONVERTED_PARTS) = ("converted_ahead", "converted_parts")
SUM_PARTS = "sum_parts"
LEAST_ROWS = 128
"""Of the other operand, for an operand to be converted before: each tile of rows converts it again.

1024 rows, 4-bit weights 3584x8192, us: 98 converted before, 222 in the loop at best; 16384 rows,
16-bit integers 1024x1280: 68, 88 at best. But one row, 4-bit weights 8192x8192: 87, 55 with shared
sums; 64 rows, 8192x1280: 24.5, 21.4.
"""
LEAST_COLUMNS = 512
"""Likewise. Left operands come from registers, and fewer columns are one tile, or two."""
SPLIT_TILE = 128
LEAST_SPLIT = 1024
"""Elements along the sum: shorter ones are added sooner than programs meet."""
LEAST_SHARED = 4096
"""Likewise, to be shared by default. Measured for 8192."""


class OperandForms(RowForms):
    """Forms of products, and when they are defaults."""

    @override
    def row_forms(self, kernel: TargetedKernel) -> Sequence[str]:
        forms = [*super().row_forms(kernel)]
        if len(kernel.facts.matmuls) != 1 or not _has_units(kernel):
            return forms
        is_converted = find_converted_operand(kernel.outline.function) is not None
        if is_converted:
            forms.append(CONVERTED_AHEAD)
        if has_few_tiles(kernel):
            forms += [CONVERTED_PARTS, SUM_PARTS] if is_converted else [SUM_PARTS]
        return forms

    @override
    def may_be_first_form(self, name: str, kernel: TargetedKernel) -> bool:
        if name not in (*AHEAD_FORMS, SUM_PARTS):
            return super().may_be_first_form(name, kernel)
        if name == SUM_PARTS:
            is_long = kernel.facts.matmuls[0].k.extent_or(0) >= LEAST_SHARED
            return is_long and _converts_right(kernel) and not _is_used_often(kernel)
        if not _is_used_often(kernel):
            return False
        return has_few_tiles(kernel) == (name == CONVERTED_PARTS)

    @override
    def least_gain(self, name: str) -> float:
        """The time that is predicted for conversions in the loop is too short."""
        return 0.0 if name in (*AHEAD_FORMS, SUM_PARTS) else super().least_gain(name)


def _is_used_often(kernel: TargetedKernel) -> bool:
    """Whether what was converted before is multiplied by enough rows, or columns."""
    (fact,), before = kernel.facts.matmuls, kernel.outline.function.before
    made = "" if before is None else before.parameters[-1].value.name
    is_left = any("lhs" in a.purpose.sides for a in kernel.facts.accesses if a.tensor == made)
    least = LEAST_COLUMNS if is_left else LEAST_ROWS
    return (fact.n if is_left else fact.m).extent_or(0) >= least


def _converts_right(kernel: TargetedKernel) -> bool:
    """Whether the loop itself converts the right operand."""
    (fact,) = kernel.facts.matmuls
    loads = [a for a in kernel.facts.accesses if a.kind == "load" and "rhs" in a.purpose.sides]
    return any(access.dtype != fact.rhs_dtype for access in loads)


def _has_units(kernel: TargetedKernel) -> bool:
    return kernel.target.kind == "cuda" and kernel.facts.matmuls[0].uses_tensor_cores


def has_few_tiles(kernel: TargetedKernel) -> bool:
    """Whether tiles of a usual size leave most multiprocessors idle, for long."""
    (fact,) = kernel.facts.matmuls
    tiles = [-(-axis.extent_or(1 << 20) // SPLIT_TILE) for axis in (fact.m, fact.n)]
    is_long = fact.k.extent_or(0) >= LEAST_SPLIT
    return is_long and 2 * prod(tiles) <= kernel.target.num_sms


COLUMN_ROWS, COLUMN_BYTES = 4, 4096
"""Rows of a program, and bytes of each that are loaded at a time, by a warp for each row.

Two chosen matrices of 4096x4096 by one vector: 64 rows of 256 elements 58.0, 16x256 40.1, 8x512
31.3, 4x1024 30.9, 4x2048 30.8 (torch.compile 27.2); of 14336x14336 654, 355, 247, 212, 207 (199).
"""
WALKED_ROWS, WALKED_STAGES = 64, 3
"""Rows of a turn, as many as an instruction takes.

x^T y, then x times that, 1152 batches of 3219x256 by 3219x64, by the steps of both loops, warps and
stages: 64, 16, 8, 5 1608; 64, 32, 4, 3 1319; 64, 64, 4, 3 1122; 32, 64, 4, 4 1120; 64, 64, 8, 4
1131; 128, 128, 8, 2 1217 (eager 1124).
"""

CONVERTED_STEPS, CONVERTED_COLUMNS, NARROWEST = 128, 32, 16
"""Of a tile that is converted in the loop for few rows: steps of its loop, and columns.

One row by 4-bit weights 8192x8192, columns x steps, 4 warps, 3 stages: 64x64 98, 64x128 81,
32x64 72, 32x128 61.5, 16x128 61.4 (torch.compile 97); 64 rows by 8192x1280: 64x64 78, 32x128 44,
16x128 32.5. With shared sums, columns x steps x steps of a program: 32x64x512 21.4, 32x64x256 23.8,
16x64x1024 24.2, 32x128x512 26.9 (torch.compile 21.1); one row: 32x128x1024 55.0, x2048 56.3.
"""
SHARED_STEPS, PROGRAMS_PER_SM = 64, 4


def converted_seeds(kernel: TargetedKernel) -> list[GpuSeed]:
    """Narrow and deep tiles for few rows by what is converted in the loop; else nothing."""
    facts = kernel.facts.matmuls
    if len(facts) != 1 or not facts[0].uses_tensor_cores or not _converts_right(kernel):
        return []
    (fact,) = facts
    rows = max(16, next_power_of_2(fact.m.extent_or(LEAST_ROWS)))
    if rows >= LEAST_ROWS or fact.n.block is None or not sized((fact.k, 1)):
        return []
    ((steps, _),) = sized((fact.k, 1)).items()
    outer, columns = kernel.outline.outer_bounds.get(steps), fact.n.extent_or(4096)
    is_wide = columns >= CONVERTED_COLUMNS * kernel.target.num_sms
    width = CONVERTED_COLUMNS if is_wide or isinstance(outer, str) else NARROWEST
    blocks = {**sized((fact.m, rows), (fact.n, width)), steps: CONVERTED_STEPS}
    if isinstance(outer, str):
        programs = PROGRAMS_PER_SM * kernel.target.num_sms // max(1, columns // width)
        length = kernel.extent(outer) // power_of_2_floor(max(1, programs))
        blocks |= {outer: next_power_of_2(length), steps: SHARED_STEPS if rows >= 64 else 128}
    seed = GpuSeed(blocks, 4, 3, fastest=(fact.m.block, fact.n.block))
    return [seed, *matmul_seeds(kernel)]


def one_column_seeds(kernel: TargetedKernel) -> list[GpuSeed]:
    """Few rows, and much of each; nothing for products with more columns."""
    facts = kernel.facts.matmuls
    if len(facts) != 1 or facts[0].n.extent != 1 or not facts[0].is_looped:
        return []
    (fact,) = facts
    if fact.m.block is None or fact.k.block is None:
        return []
    share = power_of_2_floor(max(1, fact.m.extent_or(4096) // kernel.target.num_sms))
    depth = COLUMN_BYTES // fact.lhs_dtype.itemsize
    depth = min(depth, next_power_of_2(fact.k.extent_or(depth)))
    rows = min(COLUMN_ROWS, share)
    seed = GpuSeed(sized((fact.m, rows), (fact.k, depth)), 4, 2)
    half = sized((fact.m, rows), (fact.k, max(fact.min_k, depth // 2)))
    return [seed, replace(seed, blocks=half)]


def walked_rows_seeds(kernel: TargetedKernel) -> list[GpuSeed]:
    """A loop that sums up a tile, and another that multiplies rows by it; else nothing."""
    facts = kernel.facts.matmuls
    if len(facts) != 2 or kernel.outline.grid_blocks:
        return []
    main = main_product(tuple(fact for fact in facts if fact.k.block is not None) or facts)
    (other,) = [fact for fact in facts if fact is not main]
    is_summed = main.k.block is not None and main.m.block is None and main.n.block is None
    is_walked = other.m.block is not None and other.k.block is None and other.n.block is None
    if not (is_summed and is_walked and main.itemsize == other.itemsize == 2):
        return []
    blocks = sized((main.k, WALKED_ROWS), (other.m, WALKED_ROWS))
    seeds = [replace(seed, blocks=blocks, num_warps=4) for seed in matmul_seeds(kernel)[:1]]
    return [replace(seed, num_stages=WALKED_STAGES) for seed in seeds] + matmul_seeds(kernel)
