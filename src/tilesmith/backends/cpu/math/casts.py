"""Conversions of lanes: between memory and register form, and between element types.

Half, bf16 and 8-bit floats sit in registers as ``float`` that is already rounded. Every
conversion rounds once, to nearest even; what f8e4m3 cannot hold becomes its largest number, as
in torch (it has no infinities). Floats outside an integer type become what x86 and torch
make of them: the smallest integer of the 32 or 64 bits converted through.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from tilesmith.backends.cpu.llvm.builder import Builder
from tilesmith.backends.cpu.llvm.registers import Register, memory_element, register_element
from tilesmith.backends.cpu.math.term import Term
from tilesmith.dtypes import BF16, BOOL, F8E4M3, F8E5M2, F16, F32, F64, DType, ElementKind

_E4M3_SCALE = 2.0**8  # between the exponent biases of f8e4m3 and of half


def to_register(builder: Builder, dtype: DType, x: Register) -> Register:
    """What was loaded, as it is computed with."""
    rule = _TO_REGISTER.get(dtype)
    return x if rule is None else rule(Term(builder, x)).register


def to_memory(builder: Builder, dtype: DType, x: Register) -> Register:
    """A register of that type (already rounded to it), as it is stored."""
    rule = _TO_MEMORY.get(dtype)
    return x if rule is None else rule(Term(builder, x)).register


def round_to(builder: Builder, dtype: DType, x: Register) -> Register:
    """A ``float`` rounded to the type's precision and range, still a ``float``."""
    rule = _ROUND.get(dtype)
    return x if rule is None else rule(Term(builder, x)).register


def cast(builder: Builder, source: DType, target: DType, x: Register) -> Register:
    """Convert values: round to nearest even, float to integer truncates."""
    if source == target:
        return x
    term = Term(builder, x)
    if target.is_bool:
        return (term != 0).register
    if target.is_float:
        widened = _floats_to_float if source.is_float else _integers_to_float
        return round_to(builder, target, widened(term, source, target).register)
    if source.is_float:
        return _floats_to_integers(term, target).register
    element = register_element(target)
    if not source.is_bool and target.bits < source.bits:
        return builder.convert("trunc", x, element)
    return builder.convert("sext" if source.kind is ElementKind.SIGNED else "zext", x, element)


def bitcast(builder: Builder, source: DType, target: DType, x: Register) -> Register:
    """The same bits read as another type of the same width."""
    stored = to_memory(builder, source, x)
    return to_register(builder, target, builder.convert("bitcast", stored, memory_element(target)))


def _e4m3_to_register(x: Term) -> Term:
    # A half of another bias; the sign's copy above the exponent is cleared.
    placed = (x.convert("sext", "i16") << 7) & 0xBF80
    value = _float_of_half(placed) * _E4M3_SCALE
    return ((x & 0x7F) == 0x7F).where(math.nan, value)


def _float_of_half(bits: Term) -> Term:
    return bits.convert("bitcast", "half").convert("fpext", "float")


def _e4m3_to_memory(x: Term) -> Term:
    half = _half_bits(x * (1.0 / _E4M3_SCALE))
    packed = (half.logical_right(8) & 0x80) | (half.logical_right(7) & 0x7F)
    return x.is_nan().where(0x7F, packed).convert("trunc", "i8")


def _half_bits(x: Term) -> Term:
    return x.convert("fptrunc", "half").convert("bitcast", "i16")


def _round_to_bf16(x: Term) -> Term:
    bits = x.bits()
    is_odd = bits.logical_right(16) & 1
    rounded = (bits + 0x7FFF + is_odd) & -0x10000
    return x.is_nan().where(math.nan, rounded.floats())


@dataclass(frozen=True)
class _Narrow:
    """A small float type: where its normal numbers begin and what lies beyond its largest."""

    precision: int
    smallest_normal: float
    largest_rounded_down: float
    overflow: float

    def __call__(self, x: Term) -> Term:
        """Round by adding and taking away a number whose last place is the type's spacing."""
        magnitude = abs(x)
        binade = (magnitude.bits() & 0x7F800000).floats().at_least(self.smallest_normal)
        anchor = binade * 2.0 ** (F32.precision - self.precision)
        rounded = (magnitude + anchor) - anchor
        beyond = magnitude > self.largest_rounded_down
        return beyond.where(self.overflow, rounded).with_sign_of(x)


def _floats_to_float(x: Term, source: DType, target: DType) -> Term:
    if target == F64:
        return x.convert("fpext", "double")
    if source != F64:
        return x
    return x.convert("fptrunc", "float") if target == F32 else _to_odd_single(x)


def _to_odd_single(x: Term) -> Term:
    """A double cut to single, with its last bit set if anything was lost.

    Rounding that to fewer bits gives what rounding the double would have given.
    """
    nearest = x.convert("fptrunc", "float")
    exact = nearest.convert("fpext", "double")
    overshoot = (abs(exact) > abs(x)).convert("zext", "i32")
    cut = nearest.bits() - overshoot
    return (exact != x).where(cut | 1, cut).floats()


def _integers_to_float(x: Term, source: DType, target: DType) -> Term:
    is_signed = source.kind is ElementKind.SIGNED
    to_float = "sitofp" if is_signed else "uitofp"
    if target in (F32, F64) or source.bits <= 16:
        return x.convert(to_float, register_element(target))
    if target == BF16:
        kept = x if source.bits == 32 else _to_odd_multiple(x, is_signed=is_signed)
        return _to_odd_single(kept.convert(to_float, "double"))
    # Far beyond the largest half, so that clipping there changes nothing.
    limit = 1 << 17
    clipped = x.intrinsic("smin" if is_signed else "umin", limit)
    clipped = clipped.intrinsic("smax", -limit) if is_signed else clipped
    narrowed = clipped if source.bits == 32 else clipped.convert("trunc", "i32")
    return narrowed.convert("sitofp", "float")


def _to_odd_multiple(x: Term, *, is_signed: bool) -> Term:
    """A 64-bit integer that a double can hold: the last bit it can hold is set if any was lost."""
    lost = (x & 0x7FF) != 0
    multiple = x & -0x800
    odd = lost.where(multiple | 0x800, multiple)
    shifted = x + (1 << 53) if is_signed else x
    is_small = shifted.logical_right(54 if is_signed else 53) == 0
    return is_small.where(x, odd)


def _floats_to_integers(x: Term, target: DType) -> Term:
    element = register_element(target)
    if target.bits <= 16 or (target.bits == 32 and target.kind is ElementKind.SIGNED):
        return _truncate(x, 32).convert("trunc", element)
    whole = _truncate(x, 64)
    if target.bits == 64 and target.kind is ElementKind.UNSIGNED:
        half = 2.0**63
        return (x >= half).where(_truncate(x - half, 64) ^ -(1 << 63), whole)
    return whole.convert("trunc", element)


def _truncate(x: Term, bits: int) -> Term:
    """To signed integers; what does not fit, and NaN, to the smallest one."""
    inside = abs(x) < 2.0 ** (bits - 1)
    # fptosi of anything else is poison, which a select does not let through.
    whole = x.convert("fptosi", f"i{bits}")
    return inside.where(whole, whole.number(-(1 << (bits - 1))))


_Rule = Callable[[Term], Term]
_TO_REGISTER: dict[DType, _Rule] = {
    BOOL: lambda x: x != 0,
    BF16: lambda x: (x.convert("zext", "i32") << 16).floats(),
    F16: lambda x: x.convert("fpext", "float"),
    # The upper byte of a half.
    F8E5M2: lambda x: _float_of_half(x.convert("zext", "i16") << 8),
    F8E4M3: _e4m3_to_register,
}
_TO_MEMORY: dict[DType, _Rule] = {
    BOOL: lambda x: x.convert("zext", "i8"),
    BF16: lambda x: x.bits().logical_right(16).convert("trunc", "i16"),
    F16: lambda x: x.convert("fptrunc", "half"),
    F8E5M2: lambda x: _half_bits(x).logical_right(8).convert("trunc", "i8"),
    F8E4M3: _e4m3_to_memory,
}
_ROUND: dict[DType, _Rule] = {
    BF16: _round_to_bf16,
    F16: lambda x: x.convert("fptrunc", "half").convert("fpext", "float"),
    F8E5M2: _Narrow(3, 2.0**-14, 61439.998, math.inf),
    F8E4M3: _Narrow(4, 2.0**-6, 464.0, 448.0),
}

HALF_CONVERSIONS = """
define weak hidden float @__extendhfsf2(half %x) nounwind {
  %bits = bitcast half %x to i16
  %wide = zext i16 %bits to i32
  %magnitude = and i32 %wide, 32767
  %placed = shl i32 %magnitude, 13
  %normal = add i32 %placed, 939524096
  %special = or i32 %placed, 2139095040
  %is_special = icmp uge i32 %magnitude, 31744
  %large = select i1 %is_special, i32 %special, i32 %normal
  %steps = uitofp i32 %magnitude to float
  %small = fmul float %steps, 0x3E70000000000000
  %small_bits = bitcast float %small to i32
  %is_small = icmp ult i32 %magnitude, 1024
  %result = select i1 %is_small, i32 %small_bits, i32 %large
  %sign = and i32 %wide, 32768
  %placed_sign = shl i32 %sign, 16
  %signed = or i32 %result, %placed_sign
  %float = bitcast i32 %signed to float
  ret float %float
}
define weak hidden half @__truncsfhf2(float %x) nounwind {
  %bits = bitcast float %x to i32
  %magnitude = and i32 %bits, 2147483647
  %last = lshr i32 %magnitude, 13
  %is_odd = and i32 %last, 1
  %raised = add i32 %magnitude, 4095
  %rounded = add i32 %raised, %is_odd
  %rebiased = sub i32 %rounded, 939524096
  %normal = lshr i32 %rebiased, 13
  %is_large = icmp uge i32 %magnitude, 1199566848
  %finite = select i1 %is_large, i32 31744, i32 %normal
  %is_nan = icmp ugt i32 %magnitude, 2139095040
  %large = select i1 %is_nan, i32 32256, i32 %finite
  %float = bitcast i32 %magnitude to float
  %stepped = fadd float %float, 0x3FE0000000000000
  %stepped_bits = bitcast float %stepped to i32
  %small = sub i32 %stepped_bits, 1056964608
  %is_small = icmp ult i32 %magnitude, 947912704
  %result = select i1 %is_small, i32 %small, i32 %large
  %sign = lshr i32 %bits, 16
  %placed_sign = and i32 %sign, 32768
  %signed = or i32 %result, %placed_sign
  %narrow = trunc i32 %signed to i16
  %half = bitcast i16 %narrow to half
  ret half %half
}
"""
