"""Tensors that kernels overwrite: what was there before is a tensor of its own, with a gradient.

Only where every load certainly comes before the stores into the same elements; a load that comes
after one, through the same indices, has become the stored value already.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

import torch

from tilesmith.analysis.effects import alias_group
from tilesmith.analysis.memory_conflicts import Iterations, find_accesses, is_disjoint
from tilesmith.gradients.gradient_tensors import Names, like
from tilesmith.gradients.grids.grid_blocks import keep_visible_blocks
from tilesmith.gradients.normal_form import simplify_forward
from tilesmith.ir.function import Function, Parameter
from tilesmith.ir.operation import Operation, Region, Trait
from tilesmith.ir.ops.control_flow import Grid, Loop
from tilesmith.ir.ops.memory import Load, Store
from tilesmith.ir.traversal import definitions, rewrite_function, values_defined_in, walk
from tilesmith.ir.types import TensorType, Value

_UNKNOWN: Any = object()


def names_before(traced: Function) -> list[tuple[str, str]]:
    """Names of tensors that are overwritten, with those of what was there before."""
    if not _read_and_written(traced):
        return []
    _, before, _ = read_before(keep_visible_blocks(simplify_forward(traced)), ())
    return [(value.name, old.name) for value, old in before.items()]


def read_before(
    function: Function, wanted: Collection[str]
) -> tuple[Function, dict[Value, Value], set[str]]:
    """The function with loads from tensors of their own, and these by those that are stored into.

    ``wanted`` names tensors whose gradients are asked for; it is given back with their names.

    Before::

        %a = load(%x, %i) : f32[t]
        store(%x, %b, %i)

    After::

        %a = load(%x_before, %i) : f32[t]
        store(%x, %b, %i)
    """
    names = Names(parameter.value.name for parameter in function.parameters)
    found = [value for value in _read_and_written(function) if _is_read_first(function, value)]
    before = {value: like(value, names.make(f"{value.name}_before")) for value in found}
    names_wanted = {*wanted, *(old.name for value, old in before.items() if value.name in wanted)}
    if not before:
        return function, before, names_wanted
    sources = {parameter.value: parameter.source for parameter in function.parameters}
    added = [Parameter(old, sources[value]) for value, old in before.items()]

    def move(op: Operation) -> Operation:
        if not isinstance(op, Load) or op.tensor not in before:
            return op
        return replace(op, tensor=before[op.tensor])

    made = replace(rewrite_function(function, move), parameters=(*function.parameters, *added))
    return made, before, names_wanted


def _read_and_written(function: Function) -> list[Value]:
    """Tensors of floats that are loaded and stored into, and share their memory with no other."""
    ops = list(walk(function.body))
    tensors = [p.value for p in function.parameters if isinstance(p.value.type, TensorType)]
    groups = [alias_group(value) for value in tensors]
    read = {op.tensor for op in ops if isinstance(op, Load)}
    written = {op.tensor for op in ops if isinstance(op, Store)}
    return [
        value
        for value, group in zip(tensors, groups)
        if value.tensor.dtype.is_float and value in read & written and groups.count(group) == 1
    ]


def _is_read_first(function: Function, tensor: Value) -> bool:
    """Whether no load can find what a store of this launch left.

    None loads what another program stores: that would be a race.
    """
    grids = [op for op in function.body.ops if isinstance(op, Grid)]
    if len(grids) != 1:
        return False
    known = definitions(function.body)
    loads: list[tuple[Operation, tuple[Loop, ...]]] = []
    stores: list[tuple[Operation, tuple[Loop, ...]]] = []
    for op, loops in _accesses(grids[0].body, ()):
        (access, *_) = find_accesses(op, known)
        if access.group is not None and access.group != alias_group(tensor):
            continue
        if not isinstance(op, (Load, Store)) or access.tensor is not tensor:
            return False
        if isinstance(op, Load) and stores:
            return False
        (loads if isinstance(op, Load) else stores).append((op, loops))
    for load, around in loads:
        for store, others in stores:
            (one,), (two,) = (find_accesses(op, known) for op in (load, store))
            turns = [
                Iterations(loop, frozenset(values_defined_in(loop.body)), known)
                for loop in around
                if loop in others
            ]
            if not all(is_disjoint(one, two, turn) for turn in turns):
                return False
    return True


def _accesses(
    region: Region, loops: tuple[Loop, ...]
) -> Iterator[tuple[Operation, tuple[Loop, ...]]]:
    """Ops that touch memory in program order, with the loops around them."""
    for op in region.ops:
        if not op.regions() and op.traits & (Trait.READS | Trait.WRITES):
            yield op, loops
        inner = (*loops, op) if isinstance(op, Loop) else loops
        for nested in op.regions():
            yield from _accesses(nested, inner)


def whole_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """The tensor itself, or the one that it is another shape of; None of a part of one."""
    # No public name tells it; without this one everything that is written may be a part.
    base = getattr(tensor, "_base", _UNKNOWN)
    if tensor.requires_grad or base is None:
        return tensor
    is_all = (
        base is not _UNKNOWN
        and not base.requires_grad
        and base.is_contiguous()
        and tensor.is_contiguous()
        and base.numel() == tensor.numel()
        and base.dtype == tensor.dtype
    )
    return base if is_all else None


def is_of_leaf(tensor: torch.Tensor) -> bool:
    """Whether it is a leaf of autograd or a view of one, which must not change."""
    return tensor.is_leaf or getattr(getattr(tensor, "_base", None), "is_leaf", False)
