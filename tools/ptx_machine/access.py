"""Loads, stores and atomics."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tools.ptx_machine import arithmetic
from tools.ptx_machine.kinds import KINDS, PAIRS, WORDS, Kind, Lanes, flushed, halves, joined
from tools.ptx_machine.memory import Memory
from tools.ptx_machine.ordinary import destination
from tools.ptx_machine.state import (
    CONSTANT_BASE,
    LOCAL_BASE,
    LOCAL_MASK,
    RANK_SHIFT,
    WORD_KINDS,
    State,
    Step,
    active,
    read_as,
)
from tools.ptx_machine.text import (
    Address,
    Instruction,
    Operand,
    PtxError,
    Register,
    Symbol,
    Vector,
)

SPACES = ("global", "shared", "local", "param", "const")
VECTORS = {"v2": 2, "v4": 4, "v8": 8}


def space_of(instruction: Instruction) -> str:
    """The kind of memory; without one, tensors."""
    parts = [part.split("::")[0] for part in instruction.parts]
    return next((part for part in parts if part in SPACES), "global")


class Place:
    """An operand in brackets."""

    def __init__(self, operand: Operand, space: str) -> None:
        assert isinstance(operand, Address)
        bits = 32 if isinstance(operand.base, Register) and operand.base.bits == 32 else 64
        self._read = read_as(operand.base, KINDS[f"s{bits}" if space != "shared" else f"u{bits}"])
        self._offset = operand.offset
        self._space = space

    def addresses(self, state: State, lanes: Lanes) -> Lanes:
        """As the instruction has them."""
        found = np.broadcast_to(np.asarray(self._read(state)).astype(np.int64), (state.count,))
        return found[lanes] + self._offset

    def find(self, state: State, lanes: Lanes, size: int) -> tuple[Memory, Lanes]:
        """Memory, and where in it."""
        found = self.addresses(state, lanes)
        if self._space == "shared":
            return state.shared, state.shared_places(found, lanes, size)
        is_local = found.size > 0 and LOCAL_BASE <= int(found[0]) < CONSTANT_BASE
        if is_local or self._space == "local":
            memory, starts = state.local_memory()
            return memory, (found & LOCAL_MASK) + starts[lanes]
        if found.size and found[0] >= CONSTANT_BASE:
            return state.constant, found - CONSTANT_BASE
        return state.launch.memory, found

    def find_for(self, state: State, lane: int, receiver: int, size: int) -> int:
        """The place that a lane names, in the memory of another lane's program."""
        found = self.addresses(state, np.array([lane]))
        return int(state.shared_places(found, np.array([receiver]), size)[0])


def check_aligned(places: Lanes, size: int) -> None:
    """Raise where several words at once do not begin at a multiple of their bytes."""
    if np.any(places % size):
        raise PtxError(f"an address that is no multiple of {size} bytes")


def _registers(operand: Operand) -> tuple[Operand, ...]:
    return operand.parts if isinstance(operand, Vector) else (operand,)


def decode_load(instruction: Instruction) -> Step:
    """``ld``: one word of each lane, or several."""
    space, kind = space_of(instruction), KINDS[instruction.parts[-1]]
    targets = [destination(x) for x in _registers(instruction.operands[0])]
    address = instruction.operands[1]
    assert isinstance(address, Address)
    if space == "param":
        if len(targets) > 1:
            raise PtxError("several parameters at once")
        return _load_parameter(targets[0], address, kind)
    place, size = Place(address, space), kind.bits // 8
    widths = [x.bits if isinstance(x, Register) else 0 for x in _registers(instruction.operands[0])]

    def load(state: State, mask: Lanes | None) -> None:
        lanes = active(state, mask)
        memory, places = place.find(state, lanes, size * len(targets))
        check_aligned(places, size * len(targets))
        if memory not in (state.constant, state.local):
            state.extra["watch"].load(memory, places, lanes, size * len(targets))
        for number, slot in enumerate(targets):
            bits = memory.load(places + number * size, kind.bits)
            if slot >= 0:
                state.write_lanes(slot, lanes, _extended(bits, kind, widths[number]))

    return load


def _extended(bits: Lanes, kind: Kind, width: int) -> Lanes:
    if kind.name[0] != "s" or width <= kind.bits:
        return bits
    return bits.view(f"i{kind.bits // 8}").astype(f"i{width // 8}").view(WORDS[width])


def _load_parameter(slot: int, address: Address, kind: Kind) -> Step:
    assert isinstance(address.base, Symbol)
    name, start = address.base.name, address.offset

    def load(state: State, mask: Lanes | None) -> None:
        content = state.launch.parameters[name][start : start + kind.bits // 8]
        state.write(slot, np.frombuffer(content, WORDS[kind.bits])[0:1].reshape(()), mask)

    return load


def decode_store(instruction: Instruction) -> Step:
    """``st``."""
    space, kind = space_of(instruction), WORD_KINDS[KINDS[instruction.parts[-1]].bits]
    place, size = Place(instruction.operands[0], space), kind.bits // 8
    reads = [read_as(x, kind) for x in _registers(instruction.operands[1])]

    def store(state: State, mask: Lanes | None) -> None:
        lanes = active(state, mask)
        memory, places = place.find(state, lanes, size * len(reads))
        check_aligned(places, size * len(reads))
        for number, read in enumerate(reads):
            values = np.broadcast_to(read(state), (state.count,))[lanes]
            if memory is not state.local:
                state.extra["watch"].store(memory, places + number * size, lanes, values)
            memory.store(places + number * size, values)

    return store


CHANGES: dict[str, Callable[[Lanes, Lanes], Lanes]] = {
    "add": np.add,
    "min": arithmetic.least,
    "max": arithmetic.greatest,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "exch": lambda old, new: new,
    "inc": lambda old, limit: np.where(old >= limit, np.zeros_like(old), old + old.dtype.type(1)),
    "dec": lambda old, limit: np.where((old == 0) | (old > limit), limit, old - old.dtype.type(1)),
}


def decode_atomic(instruction: Instruction) -> Step:
    """``atom`` and ``red``: lanes that meet come one after the other, parts of vectors alone."""
    parts, operands = instruction.parts, list(instruction.operands)
    targets = _registers(operands.pop(0)) if parts[0] == "atom" else ()
    slots = [destination(x) for x in targets]
    kinds = [part for part in parts if part in KINDS or part in PAIRS]
    name = next(part for part in parts if part in CHANGES or part == "cas")
    pair = PAIRS.get(kinds[-1])
    kind = KINDS[pair] if pair else KINDS[kinds[-1]]
    bits = 2 * kind.bits if pair else kind.bits
    place, space = Place(operands[0], space_of(instruction)), space_of(instruction)
    reads = [[read_as(x, WORD_KINDS[bits]) for x in _registers(each)] for each in operands[1:]]
    change = _changes(name, kind, is_pair=bool(pair), flush=space == "global" and bits == 32)

    def update(state: State, mask: Lanes | None) -> None:
        lanes = active(state, mask)
        memory, places = place.find(state, lanes, bits // 8)
        for number, part in enumerate(zip(*reads)):
            values = [np.broadcast_to(read(state), (state.count,))[lanes] for read in part]
            where = places + number * bits // 8
            old = memory.update(where, change, values, bits)
            if slots and slots[number] >= 0:
                state.write_lanes(slots[number], lanes, old)

    return update


def _exchange(old: Lanes, wanted: Lanes, new: Lanes) -> Lanes:
    return np.where(old == wanted, new, old)


def _changes(name: str, kind: Kind, *, is_pair: bool, flush: bool) -> Callable[..., Lanes]:
    if name == "cas":
        return _exchange
    compute = CHANGES[name]

    def change(old: Lanes, value: Lanes) -> Lanes:
        x, y = kind.decode(old), kind.decode(value)
        if flush and kind.name == "f32" and name == "add":
            return kind.encode(flushed(compute(flushed(x, kind), flushed(y, kind)), kind))
        return kind.encode(compute(x, y))

    if not is_pair:
        return change

    def change_both(old: Lanes, value: Lanes) -> Lanes:
        pairs = zip(halves(old, kind), halves(value, kind))
        low, high = (change(x, y) for x, y in pairs)
        return joined(low, high, kind)

    return change_both


def decode_address(instruction: Instruction) -> Step:
    """``cvta``: addresses are the same in all spaces."""
    kind = KINDS["u64"] if instruction.parts[-1].endswith("64") else KINDS["u32"]
    slot, read = destination(instruction.operands[0]), read_as(instruction.operands[1], kind)

    def run(state: State, mask: Lanes | None) -> None:
        state.write(slot, np.asarray(read(state)), mask)

    return run


def decode_remote_address(instruction: Instruction) -> Step:
    """``mapa``: the same place in the memory of another program of the cluster."""
    target, local, rank = instruction.operands
    slot, reads = destination(target), [read_as(x, KINDS["u32"]) for x in (local, rank)]

    def run(state: State, mask: Lanes | None) -> None:
        place, number = (np.asarray(read(state)).astype(np.int64) for read in reads)
        found = (place & ((1 << RANK_SHIFT) - 1)) + ((number + 1) << RANK_SHIFT)
        state.write(slot, np.asarray(found).astype(np.uint32), mask)

    return run


def decode_policy(instruction: Instruction) -> Step:
    """Hints to caches mean nothing here."""
    slot = destination(instruction.operands[0])

    def run(state: State, mask: Lanes | None) -> None:
        state.write(slot, np.array(0, np.uint64), mask)

    return run
