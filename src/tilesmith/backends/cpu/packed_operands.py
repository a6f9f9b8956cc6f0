"""Tensors packed once for all programs of a grid, and the parts of them that products read."""

from __future__ import annotations

from dataclasses import dataclass

from tilesmith.backends.cpu.dots.packed_elements import Packing
from tilesmith.ir.types import Extent
from tilesmith.ir.values import Value


@dataclass(frozen=True)
class PackedTensor:
    """A tensor in panels of columns, each with all of k.

    Attributes:
        tensor: what is packed.
        axes: its dimensions along k and along the columns.
        packing: what it is packed into.
        shared_axes: the axes of the grid whose programs have it in common.
        is_certain: whether enough programs and few enough bytes are known beforehand.
    """

    tensor: Value
    axes: tuple[int, int]
    packing: Packing
    shared_axes: tuple[int, ...]
    is_certain: bool

    @property
    def extents(self) -> tuple[Extent, Extent]:
        """How long k and the rows are."""
        k, n = (self.tensor.tensor.shape[axis] for axis in self.axes)
        return k, n

    @property
    def strides(self) -> tuple[Extent, Extent]:
        """From one step along k and from one column to the next."""
        k, n = (self.tensor.tensor.strides[axis] for axis in self.axes)
        return k, n

    @property
    def size(self) -> int | None:
        """Bytes of the copy, where that is known beforehand."""
        k, n = self.extents
        if not self.is_certain or isinstance(k, str) or isinstance(n, str):
            return None
        return self.packing.count_elements(k, n) * self.packing.dtype.itemsize


@dataclass(frozen=True)
class PackedOperand:
    """The part of a packed tensor that one product reads: where it begins, None at 0."""

    source: PackedTensor
    begins: tuple[Value | None, Value | None]
