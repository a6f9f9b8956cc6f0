"""Registers with Python's operators, so that the formulas of this folder read as formulas.

Numbers mixed in take the other side's type. Nothing is simplified: each operator is one
instruction, in the order written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from typing_extensions import override

from tilesmith.backends.cpu.llvm.builder import Builder
from tilesmith.backends.cpu.llvm.registers import LType, Register, index, number


def _operator(of_floats: str, of_integers: str = "") -> Callable[[Term, Term | float], Term]:
    def emit(x: Term, y: Term | float) -> Term:
        is_float = not of_integers or x.register.type.is_float
        return x.combine(of_floats if is_float else of_integers, y)

    return emit


def _comparison(of_floats: str, of_integers: str) -> Callable[[Term, Term | float], Term]:
    def emit(x: Term, y: Term | float) -> Term:
        return x.compare(of_floats if x.register.type.is_float else of_integers, y)

    return emit


_equal, _unequal = _comparison("oeq", "eq"), _comparison("une", "ne")


@dataclass(frozen=True, eq=False)
class Term:
    """One register of a function being written."""

    builder: Builder
    register: Register

    def number(self, value: float) -> Term:
        """A constant of this type."""
        kind = self.register.type
        return Term(self.builder, number(kind.element, value, kind.lanes))

    def combine(self, op: str, other: Term | float) -> Term:
        """The result of an instruction of two operands of this type."""
        y = self.of_this_type(other).register
        return Term(self.builder, self.builder.binary(op, self.register, y))

    def compare(self, predicate: str, other: Term | float) -> Term:
        """Where LLVM's predicate holds."""
        y = self.of_this_type(other).register
        return Term(self.builder, self.builder.compare(predicate, self.register, y))

    __add__ = _operator("fadd", "add")
    __sub__ = _operator("fsub", "sub")
    __mul__ = _operator("fmul", "mul")
    __truediv__ = _operator("fdiv")
    __and__ = _operator("and")
    __or__ = _operator("or")
    __xor__ = _operator("xor")
    __lshift__ = _operator("shl")
    __rshift__ = _operator("ashr")  # fills with the sign
    logical_right = _operator("lshr")  # fills with zeros
    __lt__ = _comparison("olt", "slt")
    __le__ = _comparison("ole", "sle")
    __gt__ = _comparison("ogt", "sgt")
    __ge__ = _comparison("oge", "sge")
    __hash__ = None  # type: ignore[assignment]

    @override
    def __eq__(self, other: Term | float) -> Term:  # type: ignore[override]
        return _equal(self, other)

    @override
    def __ne__(self, other: Term | float) -> Term:  # type: ignore[override]
        return _unequal(self, other)

    def __rsub__(self, other: float) -> Term:
        return self.number(other) - self

    def __rtruediv__(self, other: float) -> Term:
        return self.number(other) / self

    def __neg__(self) -> Term:
        if not self.register.type.is_float:
            return self.number(0) - self
        return Term(self.builder, self.builder.value(self.register.type, f"fneg {self.register}"))

    def __invert__(self) -> Term:
        return self ^ -1

    def is_nan(self) -> Term:
        """Where this is not a number."""
        return self.compare("uno", self)

    def where(self, x: Term | float, y: Term) -> Term:
        """``x`` where this condition holds, else ``y``."""
        chosen = x if isinstance(x, Term) else y.number(x)
        return Term(self.builder, self.builder.select(self.register, chosen.register, y.register))

    def fma(self, factor: Term | float, addend: Term | float) -> Term:
        """``self * factor + addend``, fused where the machine can: for approximations only."""
        return self.intrinsic("fmuladd", factor, addend)

    def intrinsic(self, name: str, *others: Term | float) -> Term:
        """An intrinsic of this type to itself."""
        registers = [self.of_this_type(other).register for other in others]
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

    def of_this_type(self, other: Term | float) -> Term:
        """A number as a constant of this type; terms as they are."""
        return other if isinstance(other, Term) else self.number(other)


def call_libm(name: str, *args: Term) -> Term:
    """``name`` as for doubles; single floats call ``<name>f``."""
    builder, registers = args[0].builder, [arg.register for arg in args]
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
