"""Strided matrices in memory, and what is asked of one product."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilesmith.backends.cpu.registers import Register
from tilesmith.dtypes import DType


@dataclass(frozen=True)
class View:
    """A strided matrix in memory.

    Attributes:
        pointer: address of element (0, 0).
        strides: from one row and from one column to the next, in elements.
        dtype: what lies there, in memory form.
        panel: columns of a panel where the matrix was packed before; from one panel to the next it
            is that many times the second stride. 0 where it was not.
    """

    pointer: Register
    strides: tuple[Register, Register]
    dtype: DType
    panel: int = 0

    @property
    def transposed(self) -> View:
        """The same memory with rows and columns exchanged."""
        return View(self.pointer, (self.strides[1], self.strides[0]), self.dtype)


@dataclass(frozen=True)
class DotProblem:
    """Extents and numerics of ``out[:m, :n] (+)= lhs[:m, :k] @ rhs[:k, :n]``.

    Attributes:
        extents: m, n and k as 64-bit registers.
        bounds: what they are at most, where known.
        dtype: F32, F64 or an integer type: products and sums are computed in it.
        lanes: fp32 lanes of the target's vectors.
        accumulate: add to what ``out`` holds instead of overwriting it; may be an ``i1`` of run
            time, so that the first step of a loop needs no zeros to add to.
        scratch: gives that many bytes of 64-byte aligned memory, valid during the product.
        has_matrix_tiles: the target multiplies bf16 matrices in tile registers (AMX); used where
            both operands lie as bf16 and products are F32. Denormal numbers of bf16 count as zero.
    """

    extents: tuple[Register, Register, Register]
    bounds: tuple[int | None, int | None, int | None]
    dtype: DType
    lanes: int
    accumulate: bool | Register
    scratch: Callable[[int], Register]
    has_matrix_tiles: bool = False
