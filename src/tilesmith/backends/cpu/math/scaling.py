"""``x * 2^n`` for whole ``n`` of any size, rounded once where the result is below the normal range.

AVX-512 has an instruction for it. Elsewhere the factor is put together from bits as two factors:
one float holds no power that takes the largest result to the smallest.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilesmith.backends.cpu.llvm.registers import number
from tilesmith.backends.cpu.math.term import Term

_VECTORS = {("float", 16): "ps", ("double", 8): "pd"}
"""The registers of 512 bits, and what their kind is called."""
_AS_MODE_SAYS = 4


@dataclass(frozen=True)
class Layout:
    """Of a float: how many bits its fraction has, and what is added to its exponent."""

    fraction_bits: int
    bias: int

    @property
    def rounding(self) -> float:
        """Numbers of this size have no fraction."""
        return 1.5 * 2.0**self.fraction_bits


@dataclass(frozen=True)
class Power:
    """``2^(n + offset)`` for the whole number next to a product."""

    n: Term
    factors: tuple[Term, ...]
    """Normal floats, or zeros; none where one instruction takes ``exponent``."""
    exponent: Term

    def times(self, x: Term) -> Term:
        """``x`` multiplied by it."""
        if not self.factors:
            return _scale(x, self.exponent)
        for factor in self.factors:
            x = x * factor
        return x


def power_of_product(x: Term, scale: float, layout: Layout, offset: int = 0) -> Power:
    """Of the integer nearest to ``scale * x``, which is at most twice as large as an exponent."""
    if has_scaling(x):
        shifted = x.fma(scale, layout.rounding)
        n = shifted - layout.rounding
        exponent = n if not offset else shifted - (layout.rounding - offset)
        return Power(n, (), exponent)
    constant = layout.rounding + 2 * layout.bias + offset
    shifted = x.fma(scale, constant)
    fields, n = shifted.bits(), shifted - constant
    half = fields.logical_right(1)
    factors = [(part << layout.fraction_bits).floats() for part in (half, fields - half)]
    return Power(n, tuple(factors), n)


def has_scaling(x: Term) -> bool:
    """Whether one instruction multiplies a register of this kind by powers of two."""
    kind = x.register.type
    return x.builder.module.scales_vectors and (kind.element, kind.lanes) in _VECTORS


def _scale(x: Term, exponent: Term) -> Term:
    builder, kind = x.builder, x.register.type
    name = f"llvm.x86.avx512.mask.scalef.{_VECTORS[kind.element, kind.lanes]}.512"
    others = number(f"i{kind.lanes}", -1), number("i32", _AS_MODE_SAYS)
    return Term(
        builder, builder.call(name, kind, x.register, exponent.register, x.register, *others)
    )
