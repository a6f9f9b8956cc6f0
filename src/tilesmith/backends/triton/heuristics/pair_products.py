"""Products by weights of which a byte holds two: forms that multiply halves, and their tiles.

For few rows. Microseconds are of an H200. Two things want tiles of 64 columns. Memory is read in
lines of 64 bytes, so where weights lie along columns a row of a tile should have that many: 4-bit
weights 8192x8192 by 16 rows, with shared sums, columns x steps x steps of a program: 16x128x1024
90, 32x64x512 36.5, 32x128x1024 37.1, 64x64x512 30.4, 64x64x1024 30.0, 64x128x1024 30.7. And where
the left operand is converted too, every tile of columns converts all of its rows again: 4-bit
floats 4096x4096 by 64 rows 83 with 16 columns, 51 with 32; with shared sums 44 with 32, 35 with 64.
Such tiles are few, so sums are shared. 4096x4096 by 16 rows: 24.7 without, 14.1 with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from typing_extensions import override

from tilesmith.backends.triton.heuristics.narrow_products import (
    LEAST_SHARED,
    NARROWEST,
    PROGRAMS_PER_SM,
    SUM_PARTS,
    OperandForms,
    converted_seeds,
)
from tilesmith.backends.triton.heuristics.seed import GpuSeed
from tilesmith.backends.triton.heuristics.tile_sides import sized
from tilesmith.ir.ops.rearrangement import Join
from tilesmith.ir.traversal import walk
from tilesmith.ir.types import Dim, next_power_of_2
from tilesmith.schedule.facts.products import MatmulFact
from tilesmith.schedule.rules import TargetedKernel
from tilesmith.schedule.space.sizes import power_of_2_floor

LINE = 64
"""Bytes that memory is read in at least; columns of a wide tile, which has as many bytes of each.

More bytes in a stage are no faster: 4-bit floats as above, 64x64 bytes 35.1, 64x128 45.4.
"""
FEWEST_PER_SM = 1.5
"""Programs, or tiles of 64 columns are too wide: 64 rows by 8192x1280 22.0, of 32 columns 19.4."""
WORTH_A_SUM = 8
"""Bytes of weights in each column of a part, for every row: twice those of the sums it leaves.

4-bit floats by 64 rows, bytes of a part: 256 39.7, 512 35.1, 1024 39.6.
"""


def few_row_seeds(kernel: TargetedKernel) -> list[GpuSeed]:
    """Of few rows by converted weights, as they are or by halves."""
    facts = kernel.facts.matmuls
    if len(facts) != 2 or facts[0].axes != facts[1].axes:
        return converted_seeds(kernel)
    kernel = first_product(kernel)
    seeds = converted_seeds(kernel)
    return [_first_seed(kernel, seeds[0]), *seeds] if seeds else []


def shares_sums(kernel: TargetedKernel) -> bool:
    """Whether programs share sums of pairs: long ones, and of too few tiles otherwise."""
    (fact,) = kernel.facts.matmuls
    is_long = 2 * fact.k.extent_or(0) >= LEAST_SHARED
    are_few = fact.n.extent_or(4096) < NARROWEST * kernel.target.num_sms
    return is_long and (are_few or _is_wide(kernel))


def first_product(kernel: TargetedKernel) -> TargetedKernel:
    """The same, of which only the first product is known."""
    return replace(kernel, facts=replace(kernel.facts, matmuls=kernel.facts.matmuls[:1]))


def _is_wide(kernel: TargetedKernel) -> bool:
    """Whether tiles should have 64 columns, and parts of their sums keep the device busy."""
    (fact,) = kernel.facts.matmuls
    parts = fact.k.extent_or(0) // (WORTH_A_SUM * _rows(fact))
    programs = fact.n.extent_or(4096) // LINE * parts
    is_wanted = _is_converted(kernel, fact) or _lies_along(kernel, fact.n.dim)
    return is_wanted and programs >= FEWEST_PER_SM * kernel.target.num_sms


def _first_seed(kernel: TargetedKernel, seed: GpuSeed) -> GpuSeed:
    """Of 64 columns and as many bytes of each, in parts that all multiprocessors have some of.

    Half as wide where sums are not shared and the left operand is converted, else as given.
    """
    (fact,) = kernel.facts.matmuls
    ((steps, _),) = sized((fact.k, 1)).items()
    outer = kernel.outline.outer_bounds.get(steps)
    if not isinstance(outer, str) and _is_converted(kernel, fact):
        return replace(seed, blocks={**seed.blocks, **sized((fact.n, LINE // 2), (fact.k, LINE))})
    if not isinstance(outer, str) or not _is_wide(kernel):
        return seed
    sides = sized((fact.n, LINE), (fact.k, LINE))
    tiles = max(1, fact.n.extent_or(4096) // LINE)
    programs = power_of_2_floor(max(1, PROGRAMS_PER_SM * kernel.target.num_sms // tiles))
    ((_, least),) = sized((fact.k, WORTH_A_SUM * _rows(fact))).items()
    length = max(least, next_power_of_2(kernel.extent(outer) // programs))
    return replace(seed, blocks={**seed.blocks, **sides, outer: length})


def _rows(fact: MatmulFact) -> int:
    return max(NARROWEST, next_power_of_2(fact.m.extent_or(LINE)))


def _is_converted(kernel: TargetedKernel, fact: MatmulFact) -> bool:
    """Whether the left operand is, too."""
    loads = [a for a in kernel.facts.accesses if a.kind == "load" and "lhs" in a.purpose.sides]
    return any(load.dtype != fact.lhs_dtype for load in loads)


def _lies_along(kernel: TargetedKernel, columns: Dim) -> bool:
    loads = [a for a in kernel.facts.accesses if a.kind == "load" and "rhs" in a.purpose.sides]
    return any(load.contiguous_dim == columns and load.dtype.itemsize == 1 for load in loads)


PAIR_FORMS = (PAIR_PRODUCTS, PAIR_PARTS) = ("pair_products", "pair_parts")


class PairForms(OperandForms):
    """Two products of halves where one has operands that are joined."""

    @override
    def row_forms(self, kernel: TargetedKernel) -> Sequence[str]:
        forms = super().row_forms(kernel)
        facts = kernel.facts.matmuls
        has_units = kernel.target.kind == "cuda" and all(f.uses_tensor_cores for f in facts)
        body = kernel.outline.function.body
        if len(facts) != 1 or not has_units or not any(isinstance(op, Join) for op in walk(body)):
            return forms
        return [*forms, *(PAIR_FORMS if SUM_PARTS in forms else (PAIR_PRODUCTS,))]

    @override
    def may_be_first_form(self, name: str, kernel: TargetedKernel) -> bool:
        """For few rows, of which sums are shared or not."""
        if name not in PAIR_FORMS:
            return super().may_be_first_form(name, kernel)
        kernel = first_product(kernel)
        return bool(converted_seeds(kernel)) and shares_sums(kernel) == (name == PAIR_PARTS)

    @override
    def form_rank(self, name: str) -> int:
        return -1 if name in PAIR_FORMS else super().form_rank(name)

    @override
    def least_gain(self, name: str) -> float:
        return 0.0 if name in PAIR_FORMS else super().least_gain(name)
