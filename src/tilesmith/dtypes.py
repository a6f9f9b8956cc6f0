"""Element types: width, kind and limits. No torch, no numpy; names are those of the IR text."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class ElementKind(Enum):
    """What arithmetic an element type takes part in."""

    BOOL = "bool"
    UNSIGNED = "unsigned"
    SIGNED = "signed"
    FLOAT = "float"


@dataclass(frozen=True)
class DType:
    """One element type.

    Attributes:
        name: spelling in IR text, e.g. ``bf16``.
        kind: bool, unsigned, signed or float.
        bits: storage width.
        precision: bits of significand including the implicit one (floats), value bits (integers).
    """

    name: str
    kind: ElementKind
    bits: int
    precision: int

    @property
    def long_name(self) -> str:
        """As torch spells it without the module: ``bfloat16``."""
        if self.name in _LONG_NAMES:
            return _LONG_NAMES[self.name]
        return {"i": "int", "u": "uint", "f": "float"}[self.name[0]] + self.name[1:]

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return max(1, self.bits // 8)

    @property
    def is_float(self) -> bool:
        """Whether this is a floating-point type."""
        return self.kind is ElementKind.FLOAT

    @property
    def is_integer(self) -> bool:
        """Whether this is a signed or unsigned integer type (bool is neither)."""
        return self.kind in (ElementKind.SIGNED, ElementKind.UNSIGNED)

    @property
    def is_bool(self) -> bool:
        """Whether this is the boolean type."""
        return self.kind is ElementKind.BOOL

    @property
    def is_low_precision_float(self) -> bool:
        """Whether arithmetic on this type is carried out in fp32 and rounded back."""
        return self.is_float and self.bits <= 16

    @property
    def computed(self) -> DType:
        """The type in which arithmetic on this one is carried out."""
        return F32 if self.is_low_precision_float else self

    def is_held_by(self, target: DType) -> bool:
        """Whether every value of this type is a value of ``target``."""
        if self == target or self.is_bool:
            return True
        if self.is_float:
            # Every wider float format here has at least the exponent range of the narrower ones.
            return target.is_float and target.bits > self.bits
        if target.kind is ElementKind.UNSIGNED and self.kind is ElementKind.SIGNED:
            return False
        return not target.is_bool and target.precision >= self.precision

    def wrap(self, value: int) -> int:
        """An integer as this integer type holds it: modulo 2^bits."""
        value &= (1 << self.bits) - 1
        is_negative = self.kind is ElementKind.SIGNED and value >> (self.bits - 1)
        return value - (1 << self.bits) if is_negative else value

    @property
    def lowest(self) -> float | int:
        """Smallest value: -inf for floats, the type's minimum for integers."""
        if self.is_float:
            return float("-inf")
        return -(1 << (self.bits - 1)) if self.kind is ElementKind.SIGNED else 0

    @property
    def highest(self) -> float | int:
        """Largest value: +inf for floats, the type's maximum for integers."""
        if self.is_float:
            return float("inf")
        if self.is_bool:
            return 1
        return (1 << (self.bits - (self.kind is ElementKind.SIGNED))) - 1

    def __str__(self) -> str:
        return self.name


_LONG_NAMES = {
    "bool": "bool", "bf16": "bfloat16", "f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2",
}  # fmt: skip
BOOL = DType("bool", ElementKind.BOOL, 8, 1)
U8 = DType("u8", ElementKind.UNSIGNED, 8, 8)
U16 = DType("u16", ElementKind.UNSIGNED, 16, 16)
U32 = DType("u32", ElementKind.UNSIGNED, 32, 32)
U64 = DType("u64", ElementKind.UNSIGNED, 64, 64)
I8 = DType("i8", ElementKind.SIGNED, 8, 7)
I16 = DType("i16", ElementKind.SIGNED, 16, 15)
I32 = DType("i32", ElementKind.SIGNED, 32, 31)
I64 = DType("i64", ElementKind.SIGNED, 64, 63)
F8E4M3 = DType("f8e4m3", ElementKind.FLOAT, 8, 4)
F8E5M2 = DType("f8e5m2", ElementKind.FLOAT, 8, 3)
F16 = DType("f16", ElementKind.FLOAT, 16, 11)
BF16 = DType("bf16", ElementKind.FLOAT, 16, 8)
F32 = DType("f32", ElementKind.FLOAT, 32, 24)
F64 = DType("f64", ElementKind.FLOAT, 64, 53)

ALL_DTYPES = (
    BOOL, U8, U16, U32, U64, I8, I16, I32, I64, F8E4M3, F8E5M2, F16, BF16, F32, F64,
)  # fmt: skip
DTYPES_BY_NAME = {dtype.name: dtype for dtype in ALL_DTYPES}
