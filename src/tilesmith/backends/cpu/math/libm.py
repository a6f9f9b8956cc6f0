"""Calls of the C library's functions, lane by lane: for what has no inline form."""

from __future__ import annotations

from tilesmith.backends.cpu.builder import Builder
from tilesmith.backends.cpu.math.term import Term
from tilesmith.backends.cpu.registers import LType, Register, index


def call_libm(name: str, *args: Term) -> Term:
    """``name`` as for doubles; single floats call ``<name>f``."""
    b = args[0].builder
    registers = [arg.register for arg in args]
    kind = registers[0].type
    spelled = name if kind.element == "double" else f"{name}f"
    if not kind.is_vector:
        return Term(b, _call(b, spelled, registers))
    memory = [b.alloca(kind.element, kind.lanes) for _ in registers]
    for register, place in zip(registers, memory):
        b.store(register, place)

    def one_lane(lane: Register) -> None:
        places = [b.offset(place, lane, kind.element) for place in memory]
        lanes = [b.load(place, LType(kind.element)) for place in places]
        b.store(_call(b, spelled, lanes), places[0])

    b.count_up(index(kind.lanes), one_lane)
    return Term(b, b.load(memory[0], kind))


def unless(rare: Term, common: Term, name: str, *args: Term) -> Term:
    """``common``, computed inline, unless a lane is one of the rare ones: then libm does all."""
    b = rare.builder
    chosen = b.if_else(
        any_lane(b, rare.register),
        lambda: [call_libm(name, *args).register],
        lambda: [common.register],
    )
    return Term(b, chosen[0])


def any_lane(b: Builder, condition: Register) -> Register:
    """Whether a condition holds in some lane."""
    if not condition.type.is_vector:
        return condition
    bits = LType(f"i{condition.lanes}")
    packed = b.value(bits, f"bitcast {condition} to {bits}")
    return b.compare("ne", packed, Register("0", bits))


def _call(b: Builder, name: str, args: list[Register]) -> Register:
    kind = args[0].type
    b.module.declare(name, kind, [kind] * len(args))
    # Cold: the caller's loop should keep its values in registers and leave spilling to this path.
    return b.value(kind, f"call {kind} @{name}({', '.join(map(str, args))}) cold")
