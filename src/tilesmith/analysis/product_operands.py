"""What is loaded for the operands of a product, and how long its contracted axis must be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import Grid, Loop
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Load
from tilesmith.ir.traversal import walk
from tilesmith.ir.types import TensorType, Value

LEAST_CONTRACTED, LEAST_CONTRACTED_BYTES = 16, 32
"""Elements that fill an instruction of a GPU: of two bytes and more, and of one byte."""


def loads_behind(value: Value, definitions: Mapping[Value, Operation]) -> Iterator[Load]:
    """All loads that ``value`` depends on."""
    seen: set[Value] = set()
    waiting = [value]
    while waiting:
        op = definitions.get(waiting.pop())
        if isinstance(op, Load):
            yield op
        for source in op.operand_values() if op is not None else ():
            if source not in seen and not isinstance(source.type, TensorType):
                seen.add(source)
                waiting.append(source)


def has_loaded_bounds_inside(loop: Grid | Loop, definitions: Mapping[Value, Operation]) -> bool:
    """Whether a loop inside ``loop`` begins or ends where memory says."""
    inner = [op for op in walk(loop.body) if isinstance(op, Loop)]
    bounds = [bound for op in inner for bound in (*op.begins, *op.ends)]
    return any(any(loads_behind(bound, definitions)) for bound in bounds)


def least_contracted(dot: Dot, definitions: Mapping[Value, Operation]) -> int:
    """The fewest elements along the contracted axis; more for bytes and what was widened from them.

    Triton lays out the operands of a product by the narrowest element loaded for them.
    """
    operands = (dot.lhs, dot.rhs)
    loads = (load for x in operands for load in loads_behind(x, definitions))
    is_narrow = all(x.tile.dtype.itemsize == 1 for x in operands) or any(
        load.tensor.tensor.dtype.itemsize == 1 for load in loads
    )
    return LEAST_CONTRACTED_BYTES if is_narrow else LEAST_CONTRACTED
