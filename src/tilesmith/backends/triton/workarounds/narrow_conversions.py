"""Conversions from and to floats of eight bits, with torch's values at the edges.

Hardware gives the largest finite number for what is too large, and for infinities; torch gives an
infinity (e5m2) or, before 2.13, NaN (e4m3fn, which has no infinities). Triton's own conversion of
e5m2 to bf16 multiplies bits into place, so that infinities and NaN become large numbers; e4m3fn
becomes fp16 on the way, from which ptxas makes integers as if it were bf16 (3.6, 3.7.1).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import torch

from tilesmith.backends.triton.emission.number_bounds import largest_size
from tilesmith.dtypes import BF16, F8E4M3, F8E5M2, F32, DType
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.elementwise import Cast
from tilesmith.ir.types import Value

FIRST_TOO_LARGE = {F8E4M3: 464.0, F8E5M2: 61440.0}
"""Half a step above the largest number: rounds down to it (e4m3fn, even) or up to infinity."""
NARROWING = {F8E4M3: "_to_e4m3", F8E5M2: "_to_e5m2"}
"""Functions of a module that convert."""
TEXT = """
def _to_e4m3(x):
    return tl.where(tl.abs(x) <= 464.0, x, float("nan")).to(tl.float8e4nv)

def _to_e5m2(x):
    bits = x.to(tl.float8e5).to(tl.int8, bitcast=True)
    special = tl.where(x != x, 127, tl.where(x < 0, -4, 124)).to(tl.int8)
    return tl.where(tl.abs(x) < 61440.0, bits, special).to(tl.float8e5, bitcast=True)
"""


@cache
def saturates() -> bool:
    """Whether torch gives the largest number of e4m3fn for what is too large, as hardware does."""
    return not torch.tensor(1e6).to(torch.float8_e4m3fn).float().isnan().item()


def narrowing(x: Value, target: DType, known: Mapping[Value, Operation]) -> str | None:
    """The function that converts a tile; None where the hardware's own will do."""
    if target not in NARROWING or x.tile.dtype == target:
        return None
    if target == F8E4M3 and saturates():
        return None
    fits = largest_size(x, known) < FIRST_TOO_LARGE[target]
    return None if fits else NARROWING[target]


def rounds_small_numbers(op: Operation | None, known: Mapping[Value, Operation]) -> bool:
    """Whether an op rounds numbers of fp32 that the hardware's own conversion will do for."""
    if not isinstance(op, Cast) or op.x.tile.dtype != F32:
        return False
    return narrowing(op.x, op.dtype, known) is None


def passes_through_fp32(source: DType, target: DType) -> bool:
    """Whether Triton has no direct conversion, or a wrong one."""
    if source in NARROWING and target == BF16:
        return True
    # fp8 converts from and to wider small floats only.
    return any(
        one.is_float and one.bits == 8 and not (other.is_float and 8 < other.bits <= 32)
        for one, other in ((source, target), (target, source))
    )
