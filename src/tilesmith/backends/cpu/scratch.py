"""Memory of one program function: small pieces on the stack, large ones from the heap.

Everything is taken when the function begins and given back when it ends, so a thread that runs
many programs takes its memory once.
"""

from __future__ import annotations

from tilesmith.backends.cpu.builder import Builder
from tilesmith.backends.cpu.registers import INDEX, POINTER, LType, Register, index

_MAX_STACK_BYTES = 64 * 1024
_ALIGNMENT = 64


class Scratch:
    """Gives memory to one function."""

    def __init__(self, b: Builder) -> None:
        self._b = b
        self._on_stack = 0
        self._on_heap: list[Register] = []

    def take(self, size: int) -> Register:
        """``size`` bytes."""
        size = max(_ALIGNMENT, -(-size // _ALIGNMENT) * _ALIGNMENT)
        if self._on_stack + size <= _MAX_STACK_BYTES:
            self._on_stack += size
            return self._b.alloca("i8", size, _ALIGNMENT)
        return self.take_runtime(index(size))

    def take_runtime(self, size: Register) -> Register:
        """As many bytes as a register says; it must be known when the function begins."""
        b = self._b
        with b.at_entry():
            whole = size
            if size.constant is None:
                raised = b.binary("add", size, index(2 * _ALIGNMENT - 1))
                whole = b.binary("and", raised, index(-_ALIGNMENT))
            pointer = b.call("aligned_alloc", LType(POINTER), index(_ALIGNMENT), whole)
        self._on_heap.append(pointer)
        return pointer

    def give_back(self) -> None:
        """At the function's end."""
        for pointer in self._on_heap:
            self._b.call_void("free", pointer)


def size_in_bytes(b: Builder, lengths: list[Register], itemsize: int) -> Register:
    """The bytes of an array of these lengths."""
    total = Register(str(itemsize), LType(INDEX))
    for length in lengths:
        total = b.multiply(total, length)
    return total
