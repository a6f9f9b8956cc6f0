"""Evaluates combinations of the user's own, element by element along the axis.

All lanes beside the axis are combined at once; elements meet in the order of their indices.
"""

from __future__ import annotations

from itertools import pairwise

import torch

from tilesmith.diagnostics.catalogue import InternalError
from tilesmith.interpreter.elementwise import convert
from tilesmith.interpreter.frame import Frame, from_tensor
from tilesmith.interpreter.scalar_functions import SCALAR_FUNCTIONS_TORCH
from tilesmith.interpreter.torch_dtypes import to_torch
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.combine import ReduceWith, ScanWith
from tilesmith.ir.ops.control_flow import Yield
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Full
from tilesmith.ir.values import Value

Elements = tuple[torch.Tensor, ...]
"""The elements of all operands at one index of the axis."""


def evaluate_reduce_with(op: ReduceWith, frame: Frame) -> None:
    """Combine along the axis; an empty axis gives what masked lanes hold."""
    steps = _elements_along([frame.tensor(x) for x in op.xs], op.axis)
    if steps:
        combined = steps[0]
        for step in steps[1:]:
            combined = combine_elements(op.combine, combined, step)
    else:
        others = op.others or (0,) * len(op.xs)
        combined = tuple(_filled(result, other, frame) for result, other in zip(op.results, others))
    for result, tensor in zip(op.results, combined):
        frame.values[result] = from_tensor(tensor, result.tile)


def evaluate_scan_with(op: ScanWith, frame: Frame) -> None:
    """Combine each element with those before it, or in reverse with those after it."""
    xs = [frame.tensor(x) for x in op.xs]
    steps = _elements_along(xs, op.axis)
    if not steps:
        frame.values.update(zip(op.results, xs))
        return
    order = list(reversed(range(len(steps)))) if op.reverse else list(range(len(steps)))
    for before, here in pairwise(order):
        steps[here] = combine_elements(op.combine, steps[before], steps[here])
    for result, line in zip(op.results, zip(*steps)):
        frame.values[result] = torch.stack(line, op.axis)


def _elements_along(xs: list[torch.Tensor], axis: int) -> list[Elements]:
    return list(zip(*(x.unbind(axis) for x in xs)))


def _filled(result: Value, other: float, frame: Frame) -> torch.Tensor:
    tile = result.tile
    return torch.full(
        frame.lengths(tile.shape), other, dtype=to_torch(tile.dtype), device=frame.device
    )


def combine_elements(combine: Region, left: Elements, right: Elements) -> Elements:
    """The combination of elements, all lanes at once."""
    values = dict(zip(combine.args, (*left, *right)))
    for op in combine.ops:
        if isinstance(op, Yield):
            break
        values[op.result] = _apply(op, values, left[0].device)
    return tuple(values[value].expand_as(like) for value, like in zip(combine.yielded, left))


def _apply(op: Operation, values: dict[Value, torch.Tensor], device: torch.device) -> torch.Tensor:
    if isinstance(op, Elementwise):
        return SCALAR_FUNCTIONS_TORCH[op.fn](*(values[arg] for arg in op.args))
    if isinstance(op, Cast):
        return convert(values[op.x], op.result.tile, is_bitcast=op.bitcast)
    if isinstance(op, Full):
        return torch.full((), op.value, dtype=to_torch(op.result.tile.dtype), device=device)
    raise InternalError(loc=op.loc, problem=f"a {op.name} stands in a combination")
