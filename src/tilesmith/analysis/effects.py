"""Which memory an op touches, and which tensors a function reads and writes.

Tensors are told apart by alias group: two accesses may meet only when their groups are equal.
"""

from __future__ import annotations

from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Region, Trait
from tilesmith.ir.ops.control_flow import GroupBarrier, While
from tilesmith.ir.ops.foreign import InlineAsm
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.ir.traversal import walk, walk_function
from tilesmith.ir.types import TensorType, Value

AliasGroup = int | Value
"""A non-negative alias number, or the tensor itself when it shares storage with nothing."""


def alias_group(tensor: Value) -> AliasGroup:
    """The key under which accesses of this tensor may meet others."""
    alias = tensor.tensor.alias
    return alias if alias >= 0 else tensor


def tensor_operands(op: Operation) -> tuple[Value, ...]:
    """The tensors an op is given."""
    return tuple(v for v in op.operand_values() if isinstance(v.type, TensorType))


def is_elsewhere(op: Operation) -> bool:
    """Whether an access goes to computed addresses, which may be in any tensor."""
    return isinstance(op, (Load, Store)) and op.bases is not None


def is_pure(op: Operation) -> bool:
    """Whether an op may be merged, moved and dropped; of assembly its author says so."""
    return Trait.PURE in op.traits or (isinstance(op, InlineAsm) and op.is_pure)


def is_pinned(op: Operation) -> bool:
    """Whether an op has an effect that must happen just where and as often as it stands."""
    return Trait.EFFECT in op.traits and not is_pure(op)


def is_removable(op: Operation) -> bool:
    """Whether an op without uses may be dropped: it is pure or only reads."""
    return is_pure(op) or (Trait.READS in op.traits and Trait.WRITES not in op.traits)


def touched_groups(op: Operation) -> frozenset[AliasGroup] | None:
    """The alias groups an op may read or write itself; None when it may be any."""
    if Trait.READS not in op.traits and Trait.WRITES not in op.traits:
        return frozenset()
    tensors = tensor_operands(op)
    if is_elsewhere(op) or isinstance(op, GroupBarrier) or (not tensors and not is_pinned(op)):
        return None
    return frozenset(map(alias_group, tensors))


def written_groups(op: Operation) -> frozenset[AliasGroup] | None:
    """The alias groups whose content may differ after an op (regions not entered); None for any.

    An acquiring atomic shows what other programs wrote, so it may change everything; so does a
    barrier.
    """
    if isinstance(op, Atomic) and op.acquires:
        return None
    # A while loop may wait for another program: what it reads changes without a write in sight.
    if isinstance(op, While):
        return None
    return touched_groups(op) if Trait.WRITES in op.traits else frozenset()


def groups_written_in(region: Region) -> frozenset[AliasGroup] | None:
    """The alias groups whose content may change anywhere in a region; None for any."""
    groups: set[AliasGroup] = set()
    for op in walk(region):
        written = written_groups(op)
        if written is None:
            return None
        groups |= written
    return frozenset(groups)


def _touched(function: Function, trait: Trait) -> list[Value]:
    """The tensor parameters that ops of that trait are given."""
    ops = (op for op in walk_function(function) if trait in op.traits)
    touched = {tensor for op in ops for tensor in tensor_operands(op)}
    return [p.value for p in function.parameters if p.value in touched]


def tensors_read(function: Function) -> tuple[str, ...]:
    """Names of the tensor parameters whose content the function may look at."""
    return tuple(tensor.name for tensor in _touched(function, Trait.READS))


def tensors_written(function: Function) -> tuple[str, ...]:
    """Names of the tensor parameters the function may change, atomics included."""
    return tuple(tensor.name for tensor in _touched(function, Trait.WRITES))


def groups_written_by(function: Function) -> frozenset[AliasGroup]:
    """Groups of tensors that the function may change."""
    return frozenset(map(alias_group, _touched(function, Trait.WRITES)))


def exchanged_memory(function: Function) -> frozenset[AliasGroup]:
    """Groups of tensors that the function may both read and change."""
    return groups_written_by(function) & frozenset(
        map(alias_group, _touched(function, Trait.READS))
    )
