"""Device code with one more index for each batch dimension, as a kernel in the language.

Each program works on one element of the batch: every access begins with its number. The kernel is
given all tensors that the launch of the original sees, results too, with the batch in front.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import tilesmith.exc as errors
from tilesmith.gradients.normal_form import simplify_forward
from tilesmith.gradients.source.device_code import INDENT, DeviceCode
from tilesmith.gradients.source.kernel_text import HEADER, HostSizes, Options
from tilesmith.gradients.source.scope import Scope
from tilesmith.gradients.source.texts import LINE, Identifiers, Text, wrapped
from tilesmith.ir.function import Function, Parameter
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import Grid
from tilesmith.ir.ops.indexing import Full
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.ir.traversal import Substitution, definitions, rewrite_region, walk
from tilesmith.ir.types import TensorType, Value
from tilesmith.jit.batching.host_code import NotBatchedError


@dataclass(frozen=True)
class BatchedSource:
    """The text of a kernel with batch dimensions, and what it is given."""

    name: str
    text: str
    arguments: tuple[str, ...]
    """Launch expressions of the original kernel."""


def batch_function(function: Function, depth: int) -> tuple[Function, list[Value]]:
    """The function with ``depth`` more axes in each grid; also gives these axes' arguments."""
    wide: dict[Value, Value] = {}
    for parameter in function.parameters:
        kind = parameter.value.type
        if isinstance(kind, TensorType):
            lead = tuple(f"batch_{level}" for level in range(depth))
            larger = replace(kind, shape=(*lead, *kind.shape), strides=(*lead, *kind.strides))
            wide[parameter.value] = parameter.value.like(larger)
    args: list[Value] = []
    ops = [new for op in function.body.ops for new in _batch_op(op, depth, wide, args)]
    parameters = [replace(p, value=wide.get(p.value, p.value)) for p in function.parameters]
    body = function.body.with_ops(ops)
    return replace(function, parameters=tuple(parameters), body=body), args


def _batch_op(
    op: Operation, depth: int, wide: dict[Value, Value], args: list[Value]
) -> tuple[Operation, ...]:
    if not isinstance(op, Grid):
        if op.regions() or not op.results:
            raise NotBatchedError(f"`{op.name}` stands outside of its loops")
        return (op,)
    kind = op.ends[0].tile if op.ends else None
    if kind is None:
        raise NotBatchedError("it has a loop without axes")
    places = [Value(kind, f"batch_{level}", op.loc) for level in range(depth)]
    args += places

    def with_places(inner: Operation) -> Operation:
        tensors = [v for v in inner.operand_values() if isinstance(v.type, TensorType)]
        if not tensors:
            return inner
        if not isinstance(inner, (Load, Store, Atomic)) or inner.tensor not in wide:
            raise NotBatchedError(f"`{inner.name}` is given a whole tensor")
        if getattr(inner, "bases", None) is not None or len(tensors) > 1:
            raise NotBatchedError("it goes to computed addresses")
        indices = (*places, *inner.indices)
        return replace(inner, tensor=wide[inner.tensor], indices=indices)

    body = rewrite_region(op.body, with_places, Substitution())
    zero = Full(value=0, results=(Value(kind, "", op.loc),), loc=op.loc)
    grid = replace(
        op,
        begins=(*(zero.result,) * depth, *op.begins),
        ends=(*(zero.result,) * depth, *op.ends),
        blocks=(*[""] * depth, *op.blocks),
        body=Region((*places, *body.args), body.ops),
    )
    return zero, grid


def write_batched(function: Function, options: Options, depth: int) -> BatchedSource:
    """The text of the batched kernel; raises NotBatchedError where there is none."""
    if any(parameter.is_zeroed for parameter in function.parameters):
        raise NotBatchedError("a launch clears memory of its own")
    made, places = batch_function(simplify_forward(function), depth)
    accessed = {op.tensor for op in walk(made.body) if isinstance(op, (Load, Store, Atomic))}
    try:
        return _Writer(made, places, options, depth).write(accessed)
    except errors.AutodiffNotSupported as problem:
        raise NotBatchedError(str(problem)) from None


class _Writer:
    def __init__(
        self, function: Function, places: list[Value], options: Options, depth: int
    ) -> None:
        self._function, self._places, self._depth = function, places, depth
        self._options = options
        self._scope = Scope(function, definitions(function.body), Identifiers())
        self._arguments: list[tuple[str, str, str]] = []
        """Name, type and launch expression."""

    def write(self, accessed: set[Value]) -> BatchedSource:
        """The whole text."""
        name = self._scope.identifiers.make(f"{self._function.name}_batched")
        tensors = [p for p in self._function.parameters if p.value in accessed]
        if not tensors:
            raise NotBatchedError("it has no tensors")
        for parameter in tensors:
            self._add(parameter, "torch.Tensor")
        self._name_numbers({p.source: self._scope.tensor(p.value) for p in tensors})
        self._scope.name_ends()
        first = self._scope.tensor(tensors[0].value)
        for place in self._places:
            level = int(place.name.removeprefix("batch_"))
            self._scope.ends[place] = f"{first}.size({level})"
        host = HostSizes(self._function, self._scope).register_blocks(())
        code = DeviceCode(self._scope)
        code.write(self._function.body, 1)
        given = [f"static_shapes={self._options.static_shapes}"]
        given += [f"{key}={value}" for key, value in self._options.others]
        lines = [
            f"@helion.kernel({', '.join(given)})",
            *self._header(name),
            *(text for line in host for text in wrapped(line, INDENT)),
            *code.lines,
        ]
        text = HEADER + code.combinations.text() + "\n".join(lines) + "\n"
        return BatchedSource(name, text, tuple(source for _, _, source in self._arguments))

    def _header(self, name: str) -> list[str]:
        parts = [f"{own}: {kind}" for own, kind, _ in self._arguments]
        line = f"def {name}({', '.join(parts)}) -> None:"
        if len(line) <= LINE:
            return [line]
        return [f"def {name}(", *(f"{INDENT}{part}," for part in parts), ") -> None:"]

    def _add(self, parameter: Parameter, kind: str) -> None:
        name = self._scope.identifiers.make(parameter.value.name)
        self._scope.texts[parameter.value] = Text(name)
        self._arguments.append((name, kind, parameter.source))

    def _name_numbers(self, tensors: dict[str, str]) -> None:
        """Sizes are read from tensors, behind the batch; other numbers are arguments."""
        for parameter in self._function.parameters:
            value, source = parameter.value, parameter.source
            if isinstance(value.type, TensorType):
                continue
            size = re.fullmatch(r"(.+)\.size\((\d+)\)", source)
            if size is not None and size[1] in tensors:
                axis = int(size[2]) + self._depth
                self._scope.texts[value] = Text(f"{tensors[size[1]]}.size({axis})")
            elif ".stride(" not in source:
                self._add(parameter, "float" if value.tile.dtype.is_float else "int")
