"""Writes the instructions of one LLVM function as text, and modules of such functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tilesmith.backends.cpu.llvm.registers import (
    INDEX,
    POINTER,
    LType,
    Register,
    index,
    lane_numbers,
    number,
)


class Module:
    """Functions and declarations of one LLVM module.

    ``scales_vectors``: whether its target multiplies 512 bits of floats by powers of two at once.
    """

    def __init__(self, *, scales_vectors: bool = False) -> None:
        self.scales_vectors = scales_vectors
        self._declarations: dict[str, str] = {}
        self._functions: dict[str, str] = {}
        self._texts: dict[str, str] = {}

    def declare(self, name: str, result: LType | None, arguments: Sequence[LType | str]) -> None:
        """Make an external function or intrinsic known; ``...`` stands for any arguments."""
        types = ", ".join(map(str, arguments))
        self._declarations[name] = f"declare {result or 'void'} @{name}({types})"

    def text_constant(self, content: str) -> str:
        """The name of a string in memory, ended by a zero."""
        return self._texts.setdefault(content, f"@text{len(self._texts)}")

    def has(self, name: str) -> bool:
        """Whether a function of that name was added."""
        return name in self._functions

    def add(self, function: InstructionWriter) -> None:
        """Take in a finished function."""
        self._functions[function.name] = function.text()

    def text(self) -> str:
        """The whole module."""
        constants: list[str] = []
        for text, name in self._texts.items():
            data = text.encode() + bytes(1)
            spelled = "".join(f"\\{byte:02X}" for byte in data)
            constants.append(f'{name} = private constant [{len(data)} x i8] c"{spelled}"')
        parts = [*constants, *self._declarations.values(), *self._functions.values()]
        return "\n".join([*parts, "!0 = !{i32 1}", ""])


class InstructionWriter:
    """One function without structure. ``parameters`` are its arguments as registers."""

    def __init__(
        self,
        module: Module,
        name: str,
        parameters: Sequence[tuple[str, LType]] = (),
        *,
        is_internal: bool = True,
    ) -> None:
        self.module = module
        self.name = name
        self.parameters = tuple(Register(f"%{text}", kind) for text, kind in parameters)
        linkage = "internal " if is_internal else ""
        listed = ", ".join(f"{p.type} {p.text}" for p in self.parameters)
        self._head = f"define {linkage}void @{name}({listed}) nounwind {{"
        self._entry: list[str] = []
        self._lines: list[str] = []
        self._count = 0
        self._label = "entry"

    def text(self) -> str:
        """The function's definition; it returns nothing."""
        lines = [self._head, "entry:", *self._entry, *self._lines, "  ret void", "}"]
        return "\n".join(lines)

    @contextmanager
    def at_entry(self) -> Iterator[None]:
        """Write straight-line code at the function's beginning, for values that live throughout."""
        saved, self._lines = self._lines, self._entry
        yield
        self._lines = saved

    def emit(self, text: str) -> None:
        """An instruction without a result."""
        self._lines.append(f"  {text}")

    def value(self, kind: LType, text: str) -> Register:
        """An instruction with a result of that type."""
        register = self.new(kind)
        self._lines.append(f"  {register.text} = {text}")
        return register

    def new(self, kind: LType, prefix: str = "v") -> Register:
        """A fresh name."""
        self._count += 1
        return Register(f"%{prefix}{self._count}", kind)

    def binary(self, op: str, x: Register, y: Register) -> Register:
        """``add``, ``fmul``, ``shl``... with flags as part of ``op``: ``add nsw``."""
        return self.value(x.type, f"{op} {x.type} {x.text}, {y.text}")

    def compare(self, predicate: str, x: Register, y: Register) -> Register:
        """Booleans; ``predicate`` as LLVM's, e.g. ``slt`` or ``olt``."""
        op = "fcmp" if x.type.is_float else "icmp"
        return self.value(x.type.with_element("i1"), f"{op} {predicate} {x}, {y.text}")

    def select(self, condition: Register, x: Register, y: Register) -> Register:
        """``x`` where the condition holds, else ``y``."""
        return self.value(x.type, f"select {condition}, {x}, {y}")

    def convert(self, op: str, x: Register, element: str) -> Register:
        """``sext``, ``fptrunc``, ``sitofp``, ``bitcast``... to another element, lane by lane."""
        kind = x.type.with_element(element)
        return x if kind == x.type else self.value(kind, f"{op} {x} to {kind}")

    def call(self, name: str, result: LType, *arguments: Register) -> Register:
        """Call a function or intrinsic, declaring it."""
        self.module.declare(name, result, [argument.type for argument in arguments])
        return self.value(result, f"call {result} @{name}({', '.join(map(str, arguments))})")

    def call_void(self, name: str, *arguments: Register) -> None:
        """Call something without a result, declaring it unless it is a function of this module."""
        if not self.module.has(name):
            self.module.declare(name, None, [argument.type for argument in arguments])
        self.emit(f"call void @{name}({', '.join(map(str, arguments))})")

    def print_formatted(self, form: str, arguments: Sequence[Register]) -> None:
        """C's ``printf``."""
        pointer = LType("ptr")
        self.module.declare("printf", LType("i32"), [pointer, "..."])
        listed = [Register(self.module.text_constant(form), pointer), *arguments]
        self.value(LType("i32"), f"call i32 (ptr, ...) @printf({', '.join(map(str, listed))})")

    def intrinsic(self, name: str, *arguments: Register) -> Register:
        """An intrinsic overloaded on the type it maps to itself: ``fma``, ``sqrt``, ``maximum``."""
        kind = arguments[0].type
        return self.call(f"llvm.{name}.{kind.suffix}", kind, *arguments)

    def splat(self, x: Register, lanes: int) -> Register:
        """A scalar in all lanes."""
        if lanes == x.lanes:
            return x
        if not x.text.startswith("%"):
            return Register(f"splat ({x})", x.type.with_lanes(lanes))
        kind = x.type.with_lanes(lanes)
        first = self.value(kind, f"insertelement {kind} poison, {x}, i32 0")
        mask = f"<{lanes} x i32> zeroinitializer"
        return self.value(kind, f"shufflevector {first}, {kind} poison, {mask}")

    def extract(self, x: Register, lane: int) -> Register:
        """One lane."""
        if not x.type.is_vector:
            return x
        return self.value(LType(x.type.element), f"extractelement {x}, i32 {lane}")

    def shuffle(self, x: Register, y: Register, lanes: Sequence[int]) -> Register:
        """Lanes picked from ``x`` and ``y`` one after the other."""
        mask = ", ".join(f"i32 {lane}" for lane in lanes)
        kind = x.type.with_lanes(len(lanes))
        return self.value(kind, f"shufflevector {x}, {y}, <{len(lanes)} x i32> <{mask}>")


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
        if x.type.element == INDEX:
            return x
        known = x.constant
        return self.convert("sext", x, INDEX) if known is None else number(INDEX, known)


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

    def prefetch(self, pointer: Register) -> None:
        """Bring memory to the second cache, to be read."""
        read, second_cache, data = (number("i32", value) for value in (0, 2, 1))
        self.call_void("llvm.prefetch.p0", pointer, read, second_cache, data)

    def masked_load(self, pointer: Register, mask: Register, other: Register) -> Register:
        """Read where the mask holds, else ``other``: neighbours, or at one address per lane."""
        kind, at = other.type, pointer.type
        name = f"llvm.masked.{'gather' if at.is_vector else 'load'}.{kind.suffix}.{at.suffix}"
        self.module.declare(name, kind, [at, _ALIGNMENT, mask.type, kind])
        address = f"{pointer}, i32 {_alignment(kind)}"
        return self.value(kind, f"call {kind} @{name}({address}, {mask}, {other})")

    def masked_store(self, x: Register, pointer: Register, mask: Register) -> None:
        """Write where the mask holds: neighbours, or at one address per lane, the last one last."""
        kind, at = x.type, pointer.type
        name = f"llvm.masked.{'scatter' if at.is_vector else 'store'}.{kind.suffix}.{at.suffix}"
        self.module.declare(name, None, [kind, at, _ALIGNMENT, mask.type])
        self.emit(f"call void @{name}({x}, {pointer}, i32 {_alignment(kind)}, {mask})")

    def first_lanes(self, count: Register, width: int) -> Register:
        """The mask of the first ``count`` lanes."""
        if count.constant == 1:
            # LLVM 22 writes four bytes for a masked store of one narrow lane if it knows the mask.
            place = self.alloca(count.type.element, 1)
            self.emit(f"store volatile {count}, {place}")
            count = self.value(count.type, f"load volatile {count.type}, {place}")
        numbers = lane_numbers(count.type.element, width)
        return self.compare("slt", numbers, self.splat(count, width))


def _alignment(kind: LType) -> int:
    return max(1, kind.bits // 8)
