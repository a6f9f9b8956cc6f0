"""Registers with Python's operators, so that the formulas of this folder read as formulas.

Numbers mixed in take the other side's type. Nothing is simplified: each operator is one
instruction, in the order written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from typing_extensions import override

from tilesmith.backends.cpu.llvm.builder import Builder
from tilesmith.backends.cpu.llvm.registers import LType, Register, index, number


@dataclass(frozen=True, eq=False)
class Term:
    """One register of a function being written."""

    builder: Builder
    register: Register

    def number(self, value: float) -> Term:
        """A constant of this type."""
        kind = self.register.type
        return Term(self.builder, number(kind.element, value, kind.lanes))

    def __add__(self, other: Term | float) -> Term:
        return self._arithmetic("add", other)

    def __sub__(self, other: Term | float) -> Term:
        return self._arithmetic("sub", other)

    def __rsub__(self, other: float) -> Term:
        return self.number(other) - self

    def __mul__(self, other: Term | float) -> Term:
        return self._arithmetic("mul", other)

    def __truediv__(self, other: Term | float) -> Term:
        return self._binary("fdiv", other)

    def __rtruediv__(self, other: float) -> Term:
        return self.number(other) / self

    def __neg__(self) -> Term:
        if not self.register.type.is_float:
            return self.number(0) - self
        return Term(self.builder, self.builder.negate(self.register))

    def __and__(self, other: Term | int) -> Term:
        return self._binary("and", other)

    def __or__(self, other: Term | int) -> Term:
        return self._binary("or", other)

    def __xor__(self, other: Term | int) -> Term:
        return self._binary("xor", other)

    def __invert__(self) -> Term:
        return self ^ -1

    def __lshift__(self, count: Term | int) -> Term:
        return self._binary("shl", count)

    def __rshift__(self, count: Term | int) -> Term:
        """Shift right, filling with the sign."""
        return self._binary("ashr", count)

    def logical_right(self, count: Term | int) -> Term:
        """Shift right, filling with zeros."""
        return self._binary("lshr", count)

    def __lt__(self, other: Term | float) -> Term:
        return self._compare("olt", "slt", other)

    def __le__(self, other: Term | float) -> Term:
        return self._compare("ole", "sle", other)

    def __gt__(self, other: Term | float) -> Term:
        return self._compare("ogt", "sgt", other)

    def __ge__(self, other: Term | float) -> Term:
        return self._compare("oge", "sge", other)

    @override
    def __eq__(self, other: Term | float) -> Term:  # type: ignore[override]
        return self._compare("oeq", "eq", other)

    @override
    def __ne__(self, other: Term | float) -> Term:  # type: ignore[override]
        return self._compare("une", "ne", other)

    __hash__ = None  # type: ignore[assignment]

    def is_nan(self) -> Term:
        """Where this is not a number."""
        return Term(self.builder, self.builder.compare("uno", self.register, self.register))

    def where(self, x: Term | float, y: Term) -> Term:
        """``x`` where this condition holds, else ``y``."""
        chosen = x if isinstance(x, Term) else y.number(x)
        return Term(self.builder, self.builder.select(self.register, chosen.register, y.register))

    def fma(self, factor: Term | float, addend: Term | float) -> Term:
        """``self * factor + addend``, fused where the machine can: for approximations only."""
        return self.intrinsic("fmuladd", factor, addend)

    def intrinsic(self, name: str, *others: Term | float) -> Term:
        """An intrinsic of this type to itself."""
        registers = [self._of_this_type(other).register for other in others]
        return Term(self.builder, self.builder.intrinsic(name, self.register, *registers))

    def __abs__(self) -> Term:
        return self.intrinsic("fabs")

    def with_sign_of(self, other: Term) -> Term:
        """This magnitude with another's sign."""
        return self.intrinsic("copysign", other)

    def at_most(self, bound: float) -> Term:
        """The smaller of both; NaN stays."""
        limit = self.number(bound)
        return (limit < self).where(limit, self)

    def at_least(self, bound: float) -> Term:
        """The larger of both; NaN stays."""
        limit = self.number(bound)
        return (limit > self).where(limit, self)

    def bits(self) -> Term:
        """The bits of floats as integers."""
        return self.convert("bitcast", f"i{self.register.type.bits}")

    def floats(self) -> Term:
        """Integers as bits of floats."""
        element = "double" if self.register.type.bits == 64 else "float"
        return self.convert("bitcast", element)

    def convert(self, op: str, element: str) -> Term:
        """Another element, lane by lane."""
        return Term(self.builder, self.builder.convert(op, self.register, element))

    def polynomial(self, coefficients: Sequence[float]) -> Term:
        """By Horner's rule; the coefficient of the highest power comes first."""
        total = self.number(coefficients[0])
        for coefficient in coefficients[1:]:
            total = total.fma(self, coefficient)
        return total

    def _arithmetic(self, op: str, other: Term | float) -> Term:
        return self._binary(f"f{op}" if self.register.type.is_float else op, other)

    def _binary(self, op: str, other: Term | float) -> Term:
        operand = self._of_this_type(other).register
        return Term(self.builder, self.builder.binary(op, self.register, operand))

    def _compare(self, of_floats: str, of_integers: str, other: Term | float) -> Term:
        predicate = of_floats if self.register.type.is_float else of_integers
        operand = self._of_this_type(other).register
        return Term(self.builder, self.builder.compare(predicate, self.register, operand))

    def _of_this_type(self, other: Term | float) -> Term:
        return other if isinstance(other, Term) else self.number(other)


def call_libm(name: str, *args: Term) -> Term:
    """``name`` as for doubles; single floats call ``<name>f``."""
    builder = args[0].builder
    registers = [arg.register for arg in args]
    kind = registers[0].type
    spelled = name if kind.element == "double" else f"{name}f"
    if not kind.is_vector:
        return Term(builder, _call(builder, spelled, registers))
    memory = [builder.alloca(kind.element, kind.lanes) for _ in registers]
    for register, place in zip(registers, memory):
        builder.store(register, place)

    def one_lane(lane: Register) -> None:
        places = [builder.offset(place, lane, kind.element) for place in memory]
        lanes = [builder.load(place, LType(kind.element)) for place in places]
        builder.store(_call(builder, spelled, lanes), places[0])

    builder.count_up(index(kind.lanes), one_lane)
    return Term(builder, builder.load(memory[0], kind))


def unless(rare: Term, common: Term, name: str, *args: Term) -> Term:
    """``common``, computed inline, unless a lane is one of the rare ones: then libm does all."""
    builder = rare.builder
    chosen = builder.if_else(
        any_lane(builder, rare.register),
        lambda: [call_libm(name, *args).register],
        lambda: [common.register],
    )
    return Term(builder, chosen[0])


def any_lane(builder: Builder, condition: Register) -> Register:
    """Whether a condition holds in some lane."""
    if not condition.type.is_vector:
        return condition
    bits = LType(f"i{condition.lanes}")
    packed = builder.value(bits, f"bitcast {condition} to {bits}")
    return builder.compare("ne", packed, Register("0", bits))


def _call(builder: Builder, name: str, args: list[Register]) -> Register:
    kind = args[0].type
    builder.module.declare(name, kind, [kind] * len(args))
    # Cold: the caller's loop should keep its values in registers and leave spilling to this path.
    return builder.value(kind, f"call {kind} @{name}({', '.join(map(str, args))}) cold")
