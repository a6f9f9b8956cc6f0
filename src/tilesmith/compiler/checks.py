"""What is told to a user about a function before code is made of it.

Top-level loops have an effect, and none needs what another writes. Elements that are written are
apart in memory. Sums over k that lose precision get a remark: ``acc += a @ b`` becomes one
accumulating dot and loses nothing, but what stands between the product and the sum, such as a
scale, keeps the rounding of the product as torch has it.
A sum that is itself of half type is rounded at every turn, however it is written.
"""

from __future__ import annotations

from collections.abc import Mapping

import tilesmith.exc as errors
from tilesmith.analysis.effects import AliasGroup, alias_group, is_pinned, tensor_operands
from tilesmith.diagnostics.kernel_warnings import TiledKMatmulAccumulationWarning, WarningLog
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Trait
from tilesmith.ir.ops.control_flow import Grid, GridBarrier, Loop
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Atomic
from tilesmith.ir.traversal import definitions, walk, walk_function
from tilesmith.ir.types import Value, find_overlap

_MEMORY = Trait.READS | Trait.WRITES
Definitions = Mapping[Value, Operation]
ROUNDED_FIRST = {"how": "that are rounded to half precision first"}
IN_HALF = {
    "how": "up in half precision",
    "note": "the sum is rounded at every turn of the loop",
    "fix": "let it be dtype=torch.float32, and convert it after the loop",
}


def check_loops(function: Function) -> None:
    """Raise if a loop does nothing, or depends on an earlier one that runs at the same time."""
    written: dict[AliasGroup, Operation] = {}
    for op in function.body.ops:
        if isinstance(op, GridBarrier):
            written.clear()
        elif isinstance(op, Grid):
            _check_grid(op, written)
        else:
            _check_access(op, written)


def _check_grid(grid: Grid, written: dict[AliasGroup, Operation]) -> None:
    ops = list(walk(grid.body))
    accesses = [op for op in ops if tensor_operands(op) and (_MEMORY & op.traits)]
    writes = [op for op in accesses if Trait.WRITES in op.traits]
    if not writes and not any(map(is_pinned, ops)):
        raise errors.EmptyDeviceLoopAfterDCE(loc=grid.loc)
    for op in accesses:
        _check_access(op, written)
    for op in writes:
        for tensor in tensor_operands(op):
            written.setdefault(alias_group(tensor), op)


def _check_access(op: Operation, written: dict[AliasGroup, Operation]) -> None:
    for tensor in tensor_operands(op):
        earlier = written.get(alias_group(tensor))
        both_atomic = isinstance(op, Atomic) and isinstance(earlier, Atomic)
        if earlier is not None and not both_atomic:
            raise errors.LoopDependencyError(tensor=tensor.name, loc=op.loc)


def check_written_tensors(function: Function, observed: Mapping[str, int]) -> None:
    """Raise if two elements of a tensor that is written are one place in memory.

    ``observed`` has the runtime sizes and strides of this call, by parameter name.
    """
    checked: set[Value] = set()
    for op in walk_function(function):
        for tensor in tensor_operands(op) if Trait.WRITES in op.traits else ():
            if tensor not in checked:
                checked.add(tensor)
                _check_elements(tensor, op, observed)


def _check_elements(tensor: Value, op: Operation, observed: Mapping[str, int]) -> None:
    shape, strides = (
        tuple(extent if isinstance(extent, int) else observed[extent] for extent in extents)
        for extents in (tensor.tensor.shape, tensor.tensor.strides)
    )
    if find_overlap(shape, strides):
        raise errors.OverlappingElements(
            tensor=tensor.name, shape=shape, strides=strides, loc=op.loc
        )


def check_products(function: Function, log: WarningLog) -> None:
    """Warn of loops that add products of half type to a carried value."""
    defined_by = definitions(function.body)
    for loop in walk_function(function):
        if isinstance(loop, Loop):
            for carried, yielded in zip(loop.carried, loop.body.yielded):
                _check_sum(carried, yielded, defined_by, log)


def _check_sum(carried: Value, yielded: Value, defined_by: Definitions, log: WarningLog) -> None:
    op = defined_by.get(_source(yielded, defined_by))
    name = carried.name or "accumulator"
    if isinstance(op, Dot) and op.acc is not None:
        if _is_half(carried) and _source(op.acc, defined_by) is carried:
            log.warn(TiledKMatmulAccumulationWarning, loc=op.loc, name=name, **IN_HALF)
        return
    if not isinstance(op, Elementwise) or op.fn != "add":
        return
    sources = [_source(arg, defined_by) for arg in op.args]
    if carried not in sources:
        return
    added = op.args[1 - sources.index(carried)]
    if _has_rounded_product(added, defined_by):
        how = IN_HALF if _is_half(carried) else ROUNDED_FIRST
        log.warn(TiledKMatmulAccumulationWarning, loc=op.loc, name=name, **how)


def _is_half(value: Value) -> bool:
    return value.tile.dtype.is_low_precision_float


def _source(value: Value, defined_by: Definitions) -> Value:
    """The value before conversions."""
    op = defined_by.get(value)
    return _source(op.x, defined_by) if isinstance(op, Cast) else value


def _has_rounded_product(value: Value, defined_by: Definitions) -> bool:
    """Whether a product is rounded to the half type of its operands on the way to ``value``."""
    op = defined_by.get(value)
    if isinstance(op, Cast) and not op.bitcast:
        dot = defined_by.get(op.x)
        if isinstance(dot, Dot) and op.dtype.is_low_precision_float:
            return op.dtype in (dot.lhs.tile.dtype, dot.rhs.tile.dtype)
    if op is None or not op.form.is_lane_wise:
        return False
    return any(_has_rounded_product(operand, defined_by) for operand in op.operand_values())
