"""What packed operands consist of: numbers of the computing type, or pairs of bf16.

A pair holds two neighbours along k in 32 bits, as instructions that multiply pairs want them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilesmith.backends.cpu.builder import Builder
from tilesmith.backends.cpu.casts import to_register
from tilesmith.backends.cpu.dots.shapes import round_up
from tilesmith.backends.cpu.registers import (
    LType,
    Register,
    index,
    memory_element,
    number,
    register_element,
)
from tilesmith.dtypes import DType, Kind


@dataclass(frozen=True)
class Packing:
    """What one operand is packed into.

    Attributes:
        source: type of the elements in memory.
        dtype: type computed in.
        width: elements of a panel along the major axis.
        used: how many of them matter.
        lanes: elements of a vector of ``dtype``.
        group: neighbours along k in one packed element: 1, or 2 for pairs of bf16.
    """

    source: DType
    dtype: DType
    width: int
    used: int
    lanes: int
    group: int = 1

    @property
    def loaded(self) -> str:
        """LLVM element in memory."""
        return memory_element(self.source)

    @property
    def element(self) -> str:
        """LLVM element of the panels."""
        return register_element(self.dtype) if self.group == 1 else "i32"

    @property
    def stem(self) -> str:
        """Part of function names."""
        kinds = f"{self.source}_{self.dtype}" if self.group == 1 else "pairs"
        return f"{kinds}_{self.used}in{self.width}x{self.lanes}"

    def steps(self, b: Builder, depth: Register) -> Register:
        """Packed elements along k."""
        return b.ceiling_quotient(depth, index(self.group))

    def panel_size(self, b: Builder, depth: Register) -> Register:
        """Elements of one panel: transposition writes whole vectors along k."""
        raised = b.add(self.steps(b, depth), index(self.lanes - 1))
        return b.multiply(b.round_down(raised, self.lanes), index(self.width))

    def count_elements(self, depth: int, majors: int) -> int:
        """Elements of all panels."""
        steps = round_up(-(-depth // self.group), self.lanes)
        return -(-majors // self.used) * self.width * steps


def load_along_depth(b: Builder, packing: Packing, pointer: Register) -> Register:
    """A vector of packed elements that lie next to each other along k."""
    x = b.load(pointer, LType(packing.loaded, packing.lanes * packing.group))
    if packing.group == 1:
        return _computed(b, packing, x)
    pairs = LType(packing.element, packing.lanes)
    return b.value(pairs, f"bitcast {x} to {pairs}")


def join_neighbours(b: Builder, packing: Packing, parts: Sequence[Register]) -> Register:
    """Packed elements of what was loaded at each of the places along k that they hold."""
    if packing.group == 1:
        return _computed(b, packing, parts[0])
    low, high = (b.convert("zext", part, packing.element) for part in parts)
    return b.binary("or", low, b.binary("shl", high, number(packing.element, 16, high.lanes)))


def load_lanes(b: Builder, kind: LType, pointer: Register, mask: Register | None) -> Register:
    """Elements as they lie in memory, zero where the mask does not hold."""
    if mask is None:
        return b.load(pointer, kind)
    return b.masked_load(pointer, mask, number(kind.element, 0, kind.lanes))


def _computed(b: Builder, packing: Packing, x: Register) -> Register:
    held = to_register(b, packing.source, x)
    if packing.dtype.is_float:
        return b.convert("fpext", held, packing.element)
    if held.type.bits > packing.dtype.bits:
        return b.convert("trunc", held, packing.element)
    is_signed = packing.source.kind is Kind.SIGNED
    return b.convert("sext" if is_signed else "zext", held, packing.element)
