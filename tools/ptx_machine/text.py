"""The text of a kernel as instructions: scopes, registers and labels are resolved."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field


class PtxError(Exception):
    """Text that is not understood, or an instruction that goes wrong."""


@dataclass(frozen=True)
class Register:
    """One of a kernel's variables; ``bits`` is 1 for predicates."""

    slot: int
    bits: int
    is_negated: bool = False


@dataclass(frozen=True)
class Number:
    """An immediate, as it is written."""

    text: str


@dataclass(frozen=True)
class Symbol:
    """A parameter, an array in memory, a label, or a special register (with ``%``)."""

    name: str


@dataclass(frozen=True)
class Vector:
    """Operands in braces, or a pair that stands around a bar."""

    parts: tuple[Operand, ...]


@dataclass(frozen=True)
class Address:
    """What stands in brackets: a base, bytes added to it, and coordinates of a tensor."""

    base: Operand
    offset: int = 0
    coordinates: Vector | None = None


Operand = Register | Number | Symbol | Vector | Address


@dataclass(frozen=True)
class Instruction:
    """One instruction; ``line`` is that of the source file, ``number`` that of the text."""

    opcode: str
    operands: tuple[Operand, ...]
    guard: Register | None
    number: int
    line: str

    @property
    def parts(self) -> list[str]:
        """The words of the opcode."""
        return self.opcode.split(".")


@dataclass(frozen=True)
class Array:
    """A named piece of memory."""

    name: str
    space: str
    size: int
    alignment: int
    content: bytes = b""


@dataclass
class Kernel:
    """What was read."""

    name: str
    parameters: list[tuple[str, int]]
    """Names and bytes."""
    instructions: list[Instruction] = field(default_factory=list[Instruction])
    threads: int = 0
    """In each program, if the text says so."""
    targets: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    """Where each branch goes, by the places of instructions; several by an index."""
    widths: list[int] = field(default_factory=list[int])
    """Bits of each register, by slot."""
    arrays: dict[str, Array] = field(default_factory=dict[str, Array])


BITS = {"pred": 1, "b128": 128, **{f"{x}{n}": n for x in "busf" for n in (8, 16, 32, 64)}}
_ENTRY = re.compile(r"\.entry\s+(\w+)\s*\((.*?)\)([^{]*)\{", re.DOTALL)
_PARAMETER = re.compile(
    r"\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)\s+(?:\.ptr\s.*?)?(\w+)(?:\[(\d+)\])?$"
)
_ARRAY = re.compile(
    r"\.(shared|global|const|local)\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+([\w$]+)"
    r"(?:\[(\d*)\])?\s*(?:=\s*\{([^}]*)\})?\s*;"
)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_NAME = re.compile(r"[\w$%.]+")


def read_kernel(text: str) -> Kernel:
    """Parse the first kernel of a module."""
    clean = _COMMENT.sub(lambda found: "\n" * found[0].count("\n"), text)
    entry = _ENTRY.search(clean)
    if entry is None:
        raise PtxError("no kernel in this text")
    kernel = Kernel(entry[1], [_parameter(part) for part in entry[2].split(",") if part.strip()])
    threads = re.search(r"\.(?:req|max)ntid\s+(\d+)", entry[3])
    kernel.threads = int(threads[1]) if threads else 0
    for found in _ARRAY.finditer(clean):
        array = _array(found)
        kernel.arrays[array.name] = array
    first = clean.count("\n", 0, entry.end()) + 1
    _Body(kernel, first).read(clean[entry.end() :])
    return kernel


def _parameter(text: str) -> tuple[str, int]:
    found = _PARAMETER.match(" ".join(text.split()))
    if found is None:
        raise PtxError(f"parameter {text.strip()!r}")
    return found[2], BITS[found[1]] // 8 * int(found[3] or 1)


def _array(found: re.Match[str]) -> Array:
    item = BITS[found[3]] // 8
    numbers = [int(x, 0) for x in (found[6] or "").split(",") if x.strip()]
    content = b"".join((x % (1 << 8 * item)).to_bytes(item, "little") for x in numbers)
    count = 1 if found[5] is None else int(found[5] or 0)
    return Array(found[4], found[1], count * item, int(found[2] or item), content)


class _Body:
    """Reads statements between a kernel's braces."""

    def __init__(self, kernel: Kernel, first_line: int) -> None:
        self._kernel = kernel
        self._number = first_line
        self._line = ""
        self._scopes: list[dict[str, Register]] = [{}]
        self._labels: list[dict[str, int]] = [{}]
        self._branches: list[tuple[int, list[str], list[dict[str, int]]]] = []
        self._tables: dict[str, list[str]] = {}
        self._last_label = ""

    def read(self, text: str) -> None:
        for statement in self._statements(text):
            if statement == "{":
                self._scopes.append({})
                self._labels.append({})
            elif statement == "}":
                self._scopes.pop()
                self._labels.pop()
                if not self._scopes:
                    break
            else:
                self._read_statement(statement)
        for place, names, labels in self._branches:
            listed = self._tables.get(names[0], names)
            scopes = [next(x for x in reversed(labels) if name in x) for name in listed]
            self._kernel.targets[place] = [x[name] for x, name in zip(scopes, listed)]

    def _statements(self, text: str) -> Iterator[str]:
        """Statements, labels with their colon, and braces that open and close scopes."""
        start, depth = 0, 0
        for place, sign in enumerate(text):
            begun = text[start:place].strip()
            if sign == "\n":
                self._number += 1
                if begun.startswith(".loc") or begun.startswith(".file"):
                    yield begun
                    start = place + 1
            elif sign in "{}" and not begun:
                yield sign
                start = place + 1
            elif sign in "{}":
                depth += 1 if sign == "{" else -1
            elif sign == ":" and re.fullmatch(r"[\w$]+", begun):
                yield begun + ":"
                start = place + 1
            elif sign == ";" and not depth:
                yield begun
                start = place + 1

    def _read_statement(self, text: str) -> None:
        if text.startswith(".loc"):
            self._line = ":".join(text.split()[1:3])
        elif text.startswith(".reg"):
            self._declare(text)
        elif text.endswith(":"):
            self._labels[-1][text[:-1]] = len(self._kernel.instructions)
            self._last_label = text[:-1]
        elif text.startswith(".branchtargets"):
            self._tables[self._last_label] = split_operands(text.split(None, 1)[1])
        elif not text.startswith("."):
            instruction = self._instruction(text)
            if instruction.parts[0] in ("bra", "brx"):
                target = instruction.operands[-1]
                assert isinstance(target, Symbol)
                branch = (len(self._kernel.instructions), [target.name], [*self._labels])
                self._branches.append(branch)
            self._kernel.instructions.append(instruction)

    def _declare(self, text: str) -> None:
        kind, names = re.match(r"\.reg\s+\.(\w+)\s+(.*)", text, re.DOTALL).groups()  # type: ignore[union-attr]
        for name in names.split(","):
            many = re.fullmatch(r"(.*?)<(\d+)>", name.strip())
            listed = [f"{many[1]}{n}" for n in range(int(many[2]))] if many else [name.strip()]
            for each in listed:
                self._scopes[-1][each] = Register(len(self._kernel.widths), BITS[kind])
                self._kernel.widths.append(BITS[kind])

    def _instruction(self, text: str) -> Instruction:
        guard = None
        if text.startswith("@"):
            word, text = text[1:].split(None, 1)
            guard = self._operand(word)
            assert isinstance(guard, Register)
        opcode, _, rest = " ".join(text.split()).partition(" ")
        operands = tuple(self._operand(part) for part in split_operands(rest))
        return Instruction(opcode, operands, guard, self._number, self._line)

    def _operand(self, text: str) -> Operand:
        text = text.strip()
        if text.startswith("{"):
            return Vector(tuple(self._operand(x) for x in split_operands(text[1:-1])))
        if text.startswith("["):
            return self._address(text[1:-1])
        if "|" in text:
            return Vector(tuple(self._operand(x) for x in text.split("|")))
        if text.startswith("!"):
            found = self._operand(text[1:])
            assert isinstance(found, Register)
            return Register(found.slot, found.bits, is_negated=True)
        for scope in reversed(self._scopes):
            if text in scope:
                return scope[text]
        if re.match(r"-?\d", text):
            return Number(text)
        if _NAME.fullmatch(text):
            return Symbol(text)
        raise PtxError(f"line {self._number}: operand {text!r}")

    def _address(self, text: str) -> Address:
        parts = split_operands(text)
        coordinates = self._operand(parts[1]) if len(parts) > 1 else None
        assert coordinates is None or isinstance(coordinates, Vector)
        found = re.fullmatch(r"(.*?)\s*\+\s*(-?\d+)", parts[0])
        base, offset = (found[1], int(found[2])) if found else (parts[0], 0)
        return Address(self._operand(base), offset, coordinates)


def split_operands(text: str) -> list[str]:
    """Parts between the commas that stand in no braces or brackets."""
    parts: list[str] = []
    depth, start = 0, 0
    for place, sign in enumerate(text):
        depth += (sign in "{[(") - (sign in "}])")
        if sign == "," and not depth:
            parts.append(text[start:place])
            start = place + 1
    parts.append(text[start:])
    return [part.strip() for part in parts if part.strip()]
