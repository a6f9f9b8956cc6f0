"""Two factors of a product as one.

Scores are scaled by one number, then by another that makes powers of e powers of two: kernels that
let users change scores between both have them apart. What a sum of products was multiplied by
twice has two roundings; one factor, itself rounded, and one product have two as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilesmith.backends.triton.warp_roles.factors.bits import in_single
from tilesmith.dtypes import F32
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.elementwise import Elementwise
from tilesmith.ir.ops.indexing import Full
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.traversal import Definitions
from tilesmith.ir.types import Value

NEAR_ONE = 2.0**64
"""Factors between this and its inverse: no product of two is subnormal, none overflows."""


def join_factors(op: Operation, defined: Definitions) -> Sequence[Operation] | None:
    """A product's sum times the product of two constants, in place of one after the other."""
    second = _find_factor(op, defined)
    first = None if second is None else defined(second[0])
    found = None if first is None else _find_factor(first, defined)
    if second is None or found is None or not isinstance(defined(found[0]), Dot):
        return None
    if abs(found[1].value) > 1 > abs(second[1].value):
        return None  # what overflows in between would not any more
    assert isinstance(op, Elementwise)
    value = in_single(in_single(found[1].value) * in_single(second[1].value))
    factor = replace(second[1], value=value, results=(second[1].result.like(),))
    return [factor, replace(op, args=(found[0], factor.result))]


def _find_factor(op: Operation, defined: Definitions) -> tuple[Value, Full] | None:
    """What an op multiplies by a constant, in fp32."""
    if not isinstance(op, Elementwise) or op.fn != "mul" or op.result.tile.dtype != F32:
        return None
    factor = defined(op.args[1])
    if not isinstance(factor, Full) or not 1 / NEAR_ONE < abs(factor.value) < NEAR_ONE:
        return None
    return op.args[0], factor
