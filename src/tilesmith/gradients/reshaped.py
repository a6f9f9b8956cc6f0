"""One tensor in two shapes: the gradient of the second is added to that of the first.

Kernels pick single elements from ``x.reshape(-1)`` where they also read the rows of ``x``. As two
gradients, both as large as ``x``, they would be filled and added up. Here a second launch adds the
picked elements to the gradient that the first one has stored.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from tilesmith.frontend.source.kernel_source import KernelSource
from tilesmith.gradients.copies import Copies
from tilesmith.gradients.normal_form import simplify_backward
from tilesmith.ir.function import Function, Parameter
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import Grid, Loop
from tilesmith.ir.ops.elementwise import Cast
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.ir.traversal import rewrite_function, walk
from tilesmith.ir.types import Value

METHODS = ("reshape", "view", "flatten")


def find_reshaped(source: KernelSource) -> dict[str, str]:
    """Names that host code gives to parameters in another shape, with those parameters."""
    nodes = [node for statement in source.before for node in ast.walk(statement)]
    bound = Counter(
        node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    )
    parameters = {arg.arg for arg in ast.walk(source.tree.args) if isinstance(arg, ast.arg)}
    found: dict[str, str] = {}
    for statement in source.before:
        match statement:
            case ast.Assign([ast.Name(name)], ast.Call(ast.Attribute(ast.Name(whole), method))) if (
                method in METHODS
            ):
                if bound[name] == 1 and not bound[whole] and whole in parameters:
                    found[name] = whole
            case _:
                pass
    return found


def add_later(function: Function, moved: Mapping[Value, Value]) -> Function | None:
    """The function with a second grid for what is added to some tensors.

    ``moved`` has other values for those tensors. None where the second grid would need what the
    first one stores.
    """
    if sum(isinstance(op, Grid) for op in function.body.ops) != 1:
        return None

    def is_moved(op: Operation) -> bool:
        return isinstance(op, Atomic) and op.tensor in moved

    def without(op: Operation) -> Operation | None:
        return None if is_moved(op) else op

    def only(op: Operation) -> Operation | list[Operation] | None:
        if isinstance(op, Atomic) and op.tensor in moved:
            return _into(op, moved[op.tensor])
        return None if isinstance(op, (Store, Atomic)) else op

    first = simplify_backward(rewrite_function(function, without))
    added = tuple(Parameter(value, value.name) for value in moved.values())
    whole = replace(function, parameters=(*function.parameters, *added))
    second = simplify_backward(rewrite_function(whole, only))
    stored = {op.tensor for op in walk(first.body) if isinstance(op, (Store, Atomic))}
    if any(isinstance(op, Load) and op.tensor in stored for op in walk(second.body)):
        return None
    loops = [op for op in walk(second.body) if isinstance(op, (Grid, Loop))]
    stepped = {block for op in loops for block in op.blocks}
    blocks = [b for b in function.blocks if b.name in stepped and b.fixed is None]
    names = {block.name: f"{block.name}_second" for block in blocks}
    copies = Copies(blocks=names)
    later = [copies.clone(op) for op in second.body.ops]
    used = {p.value for one in (first, second) for p in one.parameters}
    parameters = [p for p in whole.parameters if p.value in used and p.value not in moved]
    return replace(
        function,
        parameters=tuple(parameters),
        blocks=(*function.blocks, *(replace(b, name=names[b.name], slot=None) for b in blocks)),
        body=function.body.with_ops([*first.body.ops, *later]),
    )


def _into(op: Atomic, tensor: Value) -> list[Operation]:
    """The same sum in another tensor, which may be narrower."""
    if op.value.tile.dtype == tensor.tensor.dtype:
        return [replace(op, tensor=tensor)]
    narrow = op.value.like(op.value.tile.with_dtype(tensor.tensor.dtype))
    cast = Cast(x=op.value, results=(narrow,), loc=op.loc)
    result = op.result.like(narrow.type)
    return [cast, replace(op, tensor=tensor, value=narrow, results=(result,))]
