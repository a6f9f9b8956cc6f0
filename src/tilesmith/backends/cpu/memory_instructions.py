"""Reads and writes of memory: neighbouring elements, masked ones, scattered ones."""

from __future__ import annotations

from tilesmith.backends.cpu.instructions import InstructionWriter
from tilesmith.backends.cpu.registers import POINTER, LType, Register, lane_numbers

_ALIGNMENT = LType("i32")
"""Of masked accesses, as an operand: every LLVM up to 22 reads that form, older ones no other."""


class MemoryInstructions(InstructionWriter):
    """Writes loads and stores."""

    def alloca(self, element: str, count: int, align: int = 64) -> Register:
        """Stack memory that lives until the function returns."""
        register = self.new(LType(POINTER))
        size = f"alloca {element}, i64 {count}, align {align}"
        # In the entry block, so that a loop does not take stack again and again.
        self._entry.append(f"  {register.text} = {size}")
        return register

    def offset(self, pointer: Register, position: Register, element: str) -> Register:
        """The address of an element; with a vector of positions, a vector of addresses."""
        if position.constant == 0:
            return pointer
        kind = LType(POINTER, position.lanes)
        return self.value(kind, f"getelementptr {element}, {pointer}, {position}")

    def load(self, pointer: Register, kind: LType) -> Register:
        """Read neighbouring elements."""
        return self.value(kind, f"load {kind}, {pointer}, align {_alignment(kind)}")

    def store(self, x: Register, pointer: Register, *, nontemporal: bool = False) -> None:
        """Write neighbouring elements; nontemporal ones must be aligned to the vector's size."""
        align = x.type.bits * x.lanes // 8 if nontemporal else _alignment(x.type)
        tail = ", !nontemporal !0" if nontemporal else ""
        self.emit(f"store {x}, {pointer}, align {align}{tail}")

    def masked_load(self, pointer: Register, mask: Register, other: Register) -> Register:
        """Read neighbouring elements where the mask holds; elsewhere ``other``."""
        kind = other.type
        name = f"llvm.masked.load.{kind.suffix}.p0"
        self.module.declare(name, kind, [LType(POINTER), _ALIGNMENT, mask.type, kind])
        address = f"{pointer}, i32 {_alignment(kind)}"
        return self.value(kind, f"call {kind} @{name}({address}, {mask}, {other})")

    def masked_store(self, x: Register, pointer: Register, mask: Register) -> None:
        """Write neighbouring elements where the mask holds."""
        name = f"llvm.masked.store.{x.type.suffix}.p0"
        self.module.declare(name, None, [x.type, LType(POINTER), _ALIGNMENT, mask.type])
        address = f"{pointer}, i32 {_alignment(x.type)}"
        self.emit(f"call void @{name}({x}, {address}, {mask})")

    def first_lanes(self, count: Register, width: int) -> Register:
        """The mask of the first ``count`` lanes."""
        if count.constant == 1:
            # LLVM 22 writes four bytes for a masked store of one narrow lane if it knows the mask.
            place = self.alloca(count.type.element, 1)
            self.emit(f"store volatile {count}, {place}")
            count = self.value(count.type, f"load volatile {count.type}, {place}")
        numbers = lane_numbers(count.type.element, width)
        return self.compare("slt", numbers, self.splat(count, width))

    def gather(self, pointers: Register, mask: Register, other: Register) -> Register:
        """Read one element per lane where the mask holds; elsewhere ``other``."""
        kind = other.type
        name = f"llvm.masked.gather.{kind.suffix}.{pointers.type.suffix}"
        self.module.declare(name, kind, [pointers.type, _ALIGNMENT, mask.type, kind])
        addresses = f"{pointers}, i32 {_alignment(kind)}"
        return self.value(kind, f"call {kind} @{name}({addresses}, {mask}, {other})")

    def scatter(self, x: Register, pointers: Register, mask: Register) -> None:
        """Write one element per lane where the mask holds, the last lane last."""
        name = f"llvm.masked.scatter.{x.type.suffix}.{pointers.type.suffix}"
        self.module.declare(name, None, [x.type, pointers.type, _ALIGNMENT, mask.type])
        addresses = f"{pointers}, i32 {_alignment(x.type)}"
        self.emit(f"call void @{name}({x}, {addresses}, {mask})")


def _alignment(kind: LType) -> int:
    return max(1, kind.bits // 8)
