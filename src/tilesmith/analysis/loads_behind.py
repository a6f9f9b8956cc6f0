"""The loads that a value is computed from, and what backends ask about them.

Region arguments end the search: what was carried into a loop is not looked behind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import Grid, Loop
from tilesmith.ir.ops.memory import Load
from tilesmith.ir.traversal import walk
from tilesmith.ir.types import TensorType
from tilesmith.ir.values import Value

Definitions = Mapping[Value, Operation]


def loads_behind(value: Value, definitions: Definitions) -> Iterator[Load]:
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


def comes_from_bytes(value: Value, definitions: Definitions) -> bool:
    """Whether elements of one byte are loaded for a value."""
    return any(load.tensor.tensor.dtype.itemsize == 1 for load in loads_behind(value, definitions))


def has_loaded_bounds_inside(loop: Grid | Loop, definitions: Definitions) -> bool:
    """Whether a loop inside ``loop`` begins or ends where memory says."""
    inner = [op for op in walk(loop.body) if isinstance(op, Loop)]
    bounds = [bound for op in inner for bound in (*op.begins, *op.ends)]
    return any(any(loads_behind(bound, definitions)) for bound in bounds)
