"""LLVM values as we write them: a spelling and a type, scalar or vector.

How element types are held: ``register_element`` while computing (half and 8-bit floats as
``float`` that is already rounded), ``memory_element`` in tensors and buffers.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tilesmith.dtypes import BF16, BOOL, F16, F32, F64, DType

POINTER = "ptr"
INDEX = "i64"


@dataclass(frozen=True)
class LType:
    """A scalar (one lane) or a vector of an LLVM element type."""

    element: str
    lanes: int = 1

    @property
    def is_vector(self) -> bool:
        """Whether this is a vector."""
        return self.lanes > 1

    @property
    def is_float(self) -> bool:
        """Whether the elements are floating-point numbers."""
        return self.element in ("float", "double", "half")

    @property
    def bits(self) -> int:
        """Width of one element."""
        known = {"float": 32, "double": 64, "half": 16, POINTER: 64}
        return known.get(self.element) or int(self.element[1:])

    @property
    def suffix(self) -> str:
        """How intrinsics spell it: ``v16f32``, ``i64``, ``p0``."""
        names = {"float": "f32", "double": "f64", "half": "f16", POINTER: "p0"}
        element = names.get(self.element, self.element)
        return f"v{self.lanes}{element}" if self.is_vector else element

    def with_element(self, element: str) -> LType:
        """As many lanes of another element."""
        return LType(element, self.lanes)

    def with_lanes(self, lanes: int) -> LType:
        """The same element in another number of lanes."""
        return LType(self.element, lanes)

    def __str__(self) -> str:
        return f"<{self.lanes} x {self.element}>" if self.is_vector else self.element


@dataclass(frozen=True)
class Register:
    """An SSA value or a constant: ``text`` is its spelling without the type."""

    text: str
    type: LType

    @property
    def lanes(self) -> int:
        """Number of lanes."""
        return self.type.lanes

    @property
    def constant(self) -> int | None:
        """The value of an integer scalar constant, else None."""
        is_number = not self.type.is_vector and self.text.lstrip("-").isdigit()
        return int(self.text) if is_number else None

    def __str__(self) -> str:
        return f"{self.type} {self.text}"


def register_element(dtype: DType) -> str:
    """The LLVM element in which values of this type are computed."""
    if dtype.is_bool:
        return "i1"
    if dtype.is_float:
        return "double" if dtype == F64 else "float"
    return f"i{dtype.bits}"


def memory_element(dtype: DType) -> str:
    """The LLVM element in which values of this type are stored."""
    if dtype == BOOL:
        return "i8"
    known = {F64: "double", F32: "float", F16: "half", BF16: "i16"}
    return known.get(dtype) or f"i{dtype.bits}"


def spell_number(element: str, value: float) -> str:
    """A constant as LLVM spells it; floats exactly, in hexadecimal."""
    if element in ("float", "double", "half"):
        return _spell_float(element, float(value))
    if element == "i1":
        return "true" if value else "false"
    bits = int(element[1:])
    wrapped = int(value) & ((1 << bits) - 1)
    return str(wrapped - (1 << bits) if wrapped >> (bits - 1) else wrapped)


def _spell_float(element: str, value: float) -> str:
    if element == "half":
        return f"0xH{struct.unpack('<H', struct.pack('<e', value))[0]:04X}"
    if element == "float" and math.isfinite(value):
        # LLVM wants a float constant as the double of the same value.
        try:
            value = struct.unpack("<f", struct.pack("<f", value))[0]
        except OverflowError:
            value = math.copysign(math.inf, value)
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def number(element: str, value: float, lanes: int = 1) -> Register:
    """A constant, the same in all lanes.

    Example:
        >>> str(number("i32", -1))
        'i32 -1'
    """
    text = spell_number(element, value)
    if lanes == 1:
        return Register(text, LType(element))
    return Register(f"splat ({element} {text})", LType(element, lanes))


def index(value: int) -> Register:
    """A 64-bit integer constant."""
    return Register(str(value), LType(INDEX))


def lane_numbers(element: str, lanes: int) -> Register:
    """``0, 1, 2, ...`` along the lanes."""
    listed = ", ".join(f"{element} {i}" for i in range(lanes))
    return Register(f"<{listed}>" if lanes > 1 else "0", LType(element, lanes))


def parameters(
    names: Sequence[str], pointers: Collection[str], flags: Collection[str] = ()
) -> list[tuple[str, LType]]:
    """Of a function that takes addresses, booleans and, for all other names, indices."""
    kinds = {**dict.fromkeys(pointers, POINTER), **dict.fromkeys(flags, "i1")}
    return [(name, LType(kinds.get(name, INDEX))) for name in names]
