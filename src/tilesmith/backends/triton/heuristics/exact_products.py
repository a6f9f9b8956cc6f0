"""Exact products of fp32 that fill the multiprocessors with tiles of 128x128, two on each.

ms on an H200, the plain form / warps with roles: 4096^3 2.97 / 2.92, left operand across 2.77 /
2.57, right operand along the sum 5.52 / 3.52, both 4.85 / 2.92; 2048^3 0.385 / 0.3734, right
operand along the sum 1.237 / 0.4515; 131072x512x512 1.485 / 1.487.
"""

from __future__ import annotations

from tilesmith.backends.triton.heuristics.matmul import multiply_adds
from tilesmith.ir.types import Dim
from tilesmith.schedule.facts.products import MatmulFact
from tilesmith.schedule.rules import TargetedKernel

SIDE = 128
PROGRAMS = 2
"""On a multiprocessor: one begins and ends its tile while the other multiplies."""
LEAST_SHARE, LEAST_SHARE_ALONG = 0.95, 0.6
"""Of the places for programs, in all waves together, that multiply-adds must fill: a left operand
across gains 4 %, a right one along the sum 1.8 times the speed."""
LEAST_DEPTH = 96
LEAST_ROLE_DEPTH = 2048
"""Of sums, for warps with roles where no right operand lies along them."""


def operand_dims(kernel: TargetedKernel) -> dict[str, Dim | None]:
    """The dimension along which each operand lies, by its side."""
    loads = [item for item in kernel.facts.accesses if item.kind == "load"]
    return {side: item.contiguous_dim for item in loads for side in item.purpose.sides}


def fills_waves(kernel: TargetedKernel, fact: MatmulFact) -> bool:
    """Whether such tiles fill enough of the places for programs, and sums are long."""
    is_along = operand_dims(kernel).get("rhs") == fact.k.dim
    least = LEAST_SHARE_ALONG if is_along else LEAST_SHARE
    tiles = -(-fact.m.extent_or(1) // SIDE) * -(-fact.n.extent_or(1) // SIDE)
    tiles *= kernel.programs((fact.m.block, fact.n.block))
    places = PROGRAMS * kernel.target.num_sms
    depth = fact.k.extent_or(1)
    room = -(-tiles // places) * places * SIDE * SIDE * depth
    return depth >= LEAST_DEPTH and multiply_adds(fact) >= least * room


def is_faster_with_roles(kernel: TargetedKernel, fact: MatmulFact) -> bool:
    """Whether warps with roles were faster where it was measured, or where less gains more."""
    is_along = operand_dims(kernel).get("rhs") == fact.k.dim
    is_deep = is_along or fact.k.extent_or(0) >= LEAST_ROLE_DEPTH
    return is_deep and fills_waves(kernel, fact)
