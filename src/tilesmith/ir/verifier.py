"""Checks a function: SSA scopes, types, symbols, region terminators and each op's own rules.

It runs between passes. A failure is our mistake, so it raises ``InternalError`` with the IR.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tilesmith.diagnostics.catalogue import InternalError
from tilesmith.ir.axis_roles import Accessed
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Region, Trait
from tilesmith.ir.ops.control_flow import Grid, GridBarrier, GroupBarrier, If, Loop, While
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.ir.printer import print_function
from tilesmith.ir.types import Shape, TensorType, Type, Value

# What a rule of an op may run into when the op is malformed: a tensor for a tile, a wrong rank.
_MALFORMED = (AssertionError, AttributeError, IndexError, KeyError, TypeError, ValueError)


class _InvalidError(Exception):
    """What is wrong, and the op it was found at."""

    def __init__(self, text: str, op: Operation | None = None) -> None:
        super().__init__(text)
        self.op = op


def verify_function(function: Function) -> None:
    """Raise ``InternalError`` if the function breaks an invariant of the IR."""
    try:
        _Verifier(function).check()
    except _InvalidError as problem:
        place = f" in {problem.op.name}" if problem.op is not None else ""
        text = f"invalid IR{place}: {problem}\n{print_function(function)}"
        raise InternalError(problem=text, loc=problem.op and problem.op.loc) from None


class _Verifier:
    """Walks the function once; ``_visible`` is what is in scope, ``_defined`` all seen so far."""

    def __init__(self, function: Function) -> None:
        self._function = function
        self._blocks = {block.name for block in function.blocks}
        self._symbols = self._blocks | {size.name for size in function.sizes}
        self._scalars = {
            parameter.value.name
            for parameter in function.parameters
            if not isinstance(parameter.value.type, TensorType)
        }
        self._visible: set[Value] = set()
        self._defined: set[Value] = set()

    def check(self) -> None:
        names = [item.name for item in (*self._function.blocks, *self._function.sizes)]
        _refuse_duplicates("symbol", names)
        parameters = [parameter.value for parameter in self._function.parameters]
        _refuse_duplicates("parameter", (value.name for value in parameters))
        self._define(parameters, None)
        self._check_region(self._function.body, None)

    def _define(self, values: Iterable[Value], op: Operation | None) -> None:
        for value in values:
            if value in self._defined:
                raise _InvalidError(f"value {value.name!r} is defined twice", op)
            self._check_type(value.type, op)
            self._defined.add(value)
            self._visible.add(value)

    def _check_type(self, value_type: Type, op: Operation | None) -> None:
        if isinstance(value_type, TensorType):
            if op is not None:
                raise _InvalidError("only parameters are tensors", op)
            self._check_tensor(value_type)
            return
        for dim in value_type.shape:
            for symbol in dim.symbols:
                if symbol not in self._symbols:
                    raise _InvalidError(f"dimension {dim} names no declared block or size", op)

    def _check_tensor(self, tensor: TensorType) -> None:
        if len(tensor.shape) != len(tensor.strides):
            raise _InvalidError(f"{tensor} needs as many strides as dimensions")
        for extent in (*tensor.shape, *tensor.strides):
            if isinstance(extent, str) and extent not in self._scalars:
                raise _InvalidError(f"{tensor} names {extent!r}, which is no scalar parameter")

    def _check_region(self, region: Region, owner: Operation | None) -> None:
        outside = set(self._visible)
        self._define(region.args, owner)
        for op in region.ops:
            self._check_op(op, owner)
            if Trait.TERMINATOR in op.traits and op is not region.ops[-1]:
                raise _InvalidError("only the last op of a region may end it", op)
        self._visible = outside

    def _check_op(self, op: Operation, owner: Operation | None) -> None:
        _check_place(op, owner)
        for value in op.operand_values():
            if value not in self._visible:
                state = "out of scope" if value in self._defined else "not defined"
                raise _InvalidError(f"operand {value.name!r} is {state}", op)
        self._check_block_attributes(op)
        for region in op.regions():
            self._check_region(region, op)
        if op.num_results is not None and len(op.results) != op.num_results:
            raise _InvalidError(f"{len(op.results)} results, expected {op.num_results}", op)
        _check_rules(op)
        self._define(op.results, op)

    def _check_block_attributes(self, op: Operation) -> None:
        attributes = op.attributes()
        named = [*attributes.get("blocks", ()), *filter(None, [attributes.get("block")])]
        for name in named:
            if name and name not in self._blocks:
                raise _InvalidError(f"{name!r} is no declared block", op)


def _refuse_duplicates(what: str, names: Iterable[str]) -> None:
    for name, count in Counter(names).items():
        if count > 1 and name:
            raise _InvalidError(f"{what} {name!r} is declared twice")


def _check_place(op: Operation, owner: Operation | None) -> None:
    """Grids and what is between them stand at the top; programs meet just below their grid."""
    if isinstance(op, (Grid, GridBarrier)) and owner is not None:
        raise _InvalidError(f"a {op.name} stands inside a {owner.name}", op)
    if isinstance(op, GroupBarrier) and not isinstance(owner, Grid):
        place = f"inside a {owner.name}" if owner is not None else "outside all grids"
        raise _InvalidError(f"a {op.name} stands {place}", op)


def _check_rules(op: Operation) -> None:
    """The op's own rules, and those about its regions and accesses."""
    try:
        problem = op.verify() or _check_yields(op) or _check_access(op)
    except _MALFORMED as error:
        problem = f"malformed ({type(error).__name__}: {error})"
    if problem:
        raise _InvalidError(problem, op)


def _check_yields(op: Operation) -> str | None:
    if isinstance(op, Grid):
        return "a grid yields nothing" if op.body.yielded else None
    if isinstance(op, Loop):
        return _check_carried(op, op.carried, op.body)
    if isinstance(op, While):
        return _check_while(op)
    if isinstance(op, If) and (op.then.args or op.otherwise.args):
        return "the branches of an if have no arguments"
    return None


def _check_while(op: While) -> str | None:
    condition = [value.tile for value in op.condition.yielded]
    if len(condition) != 1 or condition[0].rank or not condition[0].dtype.is_bool:
        return "the condition must yield one bool scalar"
    if _types(op.condition.args) != _types(op.init):
        return "arguments of the condition differ in type from the initial values"
    return _check_carried(op, op.body.args, op.body)


def _check_carried(op: Loop | While, carried: tuple[Value, ...], body: Region) -> str | None:
    found = {
        "initial values": _types(op.init),
        "region arguments": _types(carried),
        "yielded values": _types(body.yielded),
    }
    for what, types in found.items():
        if types != _types(op.results):
            shown = ", ".join(map(str, types))
            return f"{what} ({shown}) differ in type from the results"
    return None


def _types(values: Iterable[Value]) -> list[Type]:
    return [value.type for value in values]


def _check_access(op: Operation) -> str | None:
    if not isinstance(op, (Load, Store, Atomic)):
        return None
    accessed = Accessed.tile(op).tile.shape
    tiles = [*op.indices, *((op.mask,) if op.mask is not None else ())]
    for tile in tiles:
        if not _broadcasts_to(tile.tile.shape, accessed):
            return (
                f"index or mask {tile.name!r}: {tile.type} does not broadcast to the accessed shape"
            )
    if op.mask is not None and not op.mask.tile.dtype.is_bool:
        return "the mask must be bool"
    if isinstance(op, Load) and op.result.tile.dtype != op.tensor.tensor.dtype:
        return "a load gives the tensor's element type"
    return None


def _broadcasts_to(shape: Shape, target: Shape) -> bool:
    pairs = zip(reversed(shape), reversed(target))
    return len(shape) <= len(target) and all(old == new or old.is_one for old, new in pairs)
