"""What a CPU schedule asks of a function beyond the common facts: balance and large outputs."""

from __future__ import annotations

from math import prod

from tilesmith.ir.ops.control_flow import Loop, While
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.ir.types import TensorType
from tilesmith.schedule.facts.index_patterns import classify_index
from tilesmith.schedule.facts.outline import FunctionOutline


def has_uneven_programs(structure: FunctionOutline) -> bool:
    """Whether the length of some loop depends on loaded data or on where its program stands."""
    if any(isinstance(site.op, While) for site in structure.sites):
        return True
    return any(
        _is_uneven(structure, loop, position)
        for loop in structure.loops
        for position in range(len(loop.blocks))
    )


def _is_uneven(structure: FunctionOutline, loop: Loop, position: int) -> bool:
    bounds = (loop.begins[position], loop.ends[position])
    if any(map(structure.is_data_dependent, bounds)):
        return True
    # The tile of an outer block has the same length wherever it begins.
    if structure.find_length_bound(loop, position) is not None:
        return False
    indices = {axis.index for grid in structure.grids for axis in structure.axes_of(grid)}
    return any(not indices.isdisjoint(structure.roots(bound)) for bound in bounds)


def largest_streamed_bytes(structure: FunctionOutline) -> int:
    """The size of the largest output of constant shape that is only ever stored, row by row."""
    used = {
        site.op.tensor.tensor.alias
        for site in structure.sites
        if isinstance(site.op, (Load, Atomic))
    }
    stores = [op for op in structure.ops(Store) if op.tensor.tensor.alias not in used]
    return max(
        (_known_bytes(op.tensor.tensor) for op in stores if _is_plain(structure, op)), default=0
    )


def _is_plain(structure: FunctionOutline, op: Store) -> bool:
    patterns = [classify_index(structure, index) for index in op.indices]
    if op.mask is not None or op.bases is not None:
        return False
    if any(pattern.kind == "gather" for pattern in patterns):
        return False
    strides = zip(op.tensor.tensor.strides, patterns)
    return any(stride == 1 and pattern.kind != "scalar" for stride, pattern in strides)


def _known_bytes(tensor: TensorType) -> int:
    sizes = [size for size in tensor.shape if isinstance(size, int)]
    return prod(sizes) * tensor.dtype.itemsize if len(sizes) == tensor.rank else 0
