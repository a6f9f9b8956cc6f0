"""Reads and writes of tensors. Lanes outside the valid range of a tile axis are never touched.

``indices`` has one integer tile per tensor dimension; they broadcast to the accessed shape, so
``x[tile_m, tile_n]`` is ``indices=([tile_m, 1], [1, tile_n])``. ``slot`` numbers accesses in
program order and binds the per-access lists of a Config; copies made by passes keep their slot.

An access with ``bases`` (u64 addresses, broadcast like an index) goes to tensors elsewhere that
look like ``tensor``: each lane starts from its own base address. It may touch any memory.
"""

from __future__ import annotations

from enum import Enum

from typing_extensions import override

from tilesmith.ir.axis_roles import Accessed, Uniform
from tilesmith.ir.operation import Operation, Trait, attribute, op, operand, operands
from tilesmith.ir.types import Value


class AtomicKind(str, Enum):
    """Read-modify-write functions."""

    ADD = "add"
    AND = "and"
    OR = "or"
    XOR = "xor"
    MAX = "max"
    MIN = "min"
    XCHG = "xchg"
    CAS = "cas"


MEMORY_ORDERS = ("relaxed", "acquire", "release", "acq_rel")


def _verify_access(tensor: Value, indices: tuple[Value, ...]) -> str | None:
    if len(indices) != tensor.tensor.rank:
        return f"{len(indices)} indices for a tensor of rank {tensor.tensor.rank}"
    if not all(index.tile.dtype.is_integer for index in indices):
        return "indices must be integers"
    return None


@op("load", Trait.READS, axes=Accessed())
class Load(Operation):
    """Read the indexed elements; masked-off lanes read as 0."""

    tensor: Value = operand()
    mask: Value | None = operand(optional=True)
    bases: Value | None = operand(optional=True, named=True)
    indices: tuple[Value, ...] = operands()
    slot: int = attribute(default=-1)
    eviction: str = attribute(default="")
    """``evict_first``/``evict_last`` when the source asks; such a load has no config slot."""

    @override
    def verify(self) -> str | None:
        return _verify_access(self.tensor, self.indices)


@op("store", Trait.WRITES, num_results=0, axes=Accessed())
class Store(Operation):
    """Write ``value`` (already of the tensor's element type and of the accessed shape)."""

    tensor: Value = operand()
    value: Value = operand()
    mask: Value | None = operand(optional=True)
    bases: Value | None = operand(optional=True, named=True)
    indices: tuple[Value, ...] = operands()
    slot: int = attribute(default=-1)

    @override
    def verify(self) -> str | None:
        if self.value.tile.dtype != self.tensor.tensor.dtype:
            return "stored value must have the tensor's element type"
        return _verify_access(self.tensor, self.indices)


@op("atomic", Trait.READS | Trait.WRITES, axes=Accessed())
class Atomic(Operation):
    """Read-modify-write each indexed element once; gives the previous values.

    ``cas`` writes ``value`` where the element equals ``expected``, which only ``cas`` has.
    """

    tensor: Value = operand()
    value: Value = operand()
    expected: Value | None = operand(optional=True, named=True)
    mask: Value | None = operand(optional=True)
    indices: tuple[Value, ...] = operands()
    kind: str = attribute()
    order: str = attribute(default="relaxed")
    slot: int = attribute(default=-1)

    @property
    def releases(self) -> bool:
        """Whether programs that see it may rely on all that came before it."""
        return self.order in ("release", "acq_rel")

    @property
    def acquires(self) -> bool:
        """Whether all that comes after it may rely on what other programs released."""
        return self.order in ("acquire", "acq_rel")

    @override
    def verify(self) -> str | None:
        if self.kind not in {kind.value for kind in AtomicKind} or self.order not in MEMORY_ORDERS:
            return f"unknown atomic {self.kind!r} or order {self.order!r}"
        if (self.kind == AtomicKind.CAS.value) != (self.expected is not None):
            return "an expected value belongs to cas, and to nothing else"
        return _verify_access(self.tensor, self.indices)


@op("program_barrier", Trait.READS | Trait.WRITES, num_results=0, axes=Uniform())
class ProgramBarrier(Operation):
    """Makes earlier stores of this program visible to its later loads, whichever thread loads."""
