"""Branches that one program of many takes: it has counted the others, and is the last of them."""

from __future__ import annotations

from tilesmith.ir.operation import Region
from tilesmith.ir.ops.control_flow import If, Loop
from tilesmith.ir.ops.elementwise import Elementwise
from tilesmith.ir.ops.indexing import BlockSize
from tilesmith.ir.ops.memory import Atomic
from tilesmith.ir.values import Value
from tilesmith.schedule.facts.outline import FunctionOutline


def counted_loops(structure: FunctionOutline) -> dict[int, str]:
    """Loops in such branches, by identity, with the block whose tiles are counted."""
    found: dict[int, str] = {}
    for branch in structure.ops(If):
        block = _counted_block(structure, branch.condition)
        if block:
            found.update((id(loop), block) for loop in _loops(branch.then))
    return found


def _counted_block(structure: FunctionOutline, condition: Value) -> str:
    """Of ``atomic_add(counts, 1) == last // block``."""
    test = structure.definitions.get(condition)
    if not isinstance(test, Elementwise) or test.fn != "eq":
        return ""
    sides = [structure.definitions.get(arg) for arg in test.args]
    counts = [op for op in sides if isinstance(op, Atomic) and op.kind == "add"]
    ends = [op for op in sides if isinstance(op, Elementwise) and op.fn == "floordiv"]
    if not counts or not ends:
        return ""
    size = structure.definitions.get(ends[0].args[1])
    return size.block if isinstance(size, BlockSize) else ""


def _loops(region: Region) -> list[Loop]:
    return [op for op in region.ops if isinstance(op, Loop)]
