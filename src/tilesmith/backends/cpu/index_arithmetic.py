"""Arithmetic on 64-bit indices, worked out at once where they are constant."""

from __future__ import annotations

from tilesmith.backends.cpu.instructions import InstructionWriter
from tilesmith.backends.cpu.registers import INDEX, Register, index, number


class IndexArithmetic(InstructionWriter):
    """Writes sums, products and quotients of indices."""

    def add(self, x: Register, y: Register) -> Register:
        """``x + y`` of indices."""
        if x.constant == 0 or y.constant == 0:
            return y if x.constant == 0 else x
        if x.constant is not None and y.constant is not None:
            return index(x.constant + y.constant)
        return self.binary("add nsw", x, y)

    def subtract(self, x: Register, y: Register) -> Register:
        """``x - y`` of indices."""
        if y.constant == 0:
            return x
        if x.constant is not None and y.constant is not None:
            return index(x.constant - y.constant)
        return self.binary("sub nsw", x, y)

    def multiply(self, x: Register, y: Register) -> Register:
        """``x * y`` of indices."""
        if x.constant == 1 or y.constant == 1:
            return y if x.constant == 1 else x
        if x.constant == 0 or y.constant == 0:
            return index(0)
        if x.constant is not None and y.constant is not None:
            return index(x.constant * y.constant)
        return self.binary("mul nsw", x, y)

    def minimum(self, x: Register, y: Register) -> Register:
        """The smaller of two indices."""
        if x.constant is not None and y.constant is not None:
            return index(min(x.constant, y.constant))
        return self.intrinsic("smin", x, y)

    def round_down(self, x: Register, multiple: int) -> Register:
        """The largest multiple of a power of two that is at most ``x``."""
        if x.constant is not None:
            return index(x.constant // multiple * multiple)
        return self.binary("and", x, index(-multiple))

    def ceiling_quotient(self, x: Register, divisor: Register) -> Register:
        """``x / divisor`` rounded up, for ``x >= 0`` and ``divisor > 0``."""
        if divisor.constant == 1:
            return x
        if x.constant is not None and divisor.constant is not None:
            return index(-(-x.constant // divisor.constant))
        raised = self.add(x, self.subtract(divisor, index(1)))
        return self.binary("sdiv", raised, divisor)

    def index_of(self, x: Register) -> Register:
        """A signed integer as a 64-bit index."""
        return x if x.type.element == INDEX else self._widen(x)

    def _widen(self, x: Register) -> Register:
        if x.constant is not None:
            return number(INDEX, x.constant)
        return self.convert("sext", x, INDEX)
