"""What a running kernel has: lanes, registers, memory, and lanes that wait."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tools.ptx_machine.kinds import KINDS, WORDS, Kind, Lanes
from tools.ptx_machine.memory import Memory, OwnMemory
from tools.ptx_machine.text import Kernel, Number, Operand, PtxError, Register, Symbol

WARP = 32
SHARED_BASE = 1024
"""The first bytes of a program's memory are the system's, as on Hopper."""
Read = Callable[["State"], Lanes]
Step = Callable[["State", "Lanes | None"], None]
"""Does an instruction for some lanes (None: for all)."""


@dataclass(frozen=True)
class Launch:
    """What a kernel is started with."""

    grid: tuple[int, int, int]
    num_threads: int
    shared_bytes: int
    parameters: dict[str, bytes]
    memory: Memory
    descriptions: dict[int, Any] = field(default_factory=dict[int, Any])
    """Tensors as the copy engine sees them, by the address of the parameter."""
    cluster: int = 1
    """Programs that see each other's memory."""


@dataclass
class State:
    """Some programs of a launch: ``programs`` are their numbers along the flat grid."""

    kernel: Kernel
    launch: Launch
    programs: Sequence[int]
    registers: list[Lanes] = field(default_factory=list[Lanes])
    extra: dict[str, Any] = field(default_factory=dict[str, Any])
    """What units beside the ordinary ones keep: copies and products under way."""

    def __post_init__(self) -> None:
        threads = self.launch.num_threads
        self.count = threads * len(self.programs)
        self.thread = np.tile(np.arange(threads, dtype=np.uint32), len(self.programs))
        self.slot = np.repeat(np.arange(len(self.programs)), threads)
        """Which of the programs that run together a lane is of."""
        self.flat = np.repeat(np.array(self.programs, np.int64), threads)
        self.registers = [np.zeros(self.count, WORDS[bits]) for bits in self.kernel.widths]
        self._lay_out_shared()
        self.local: OwnMemory | None = None
        self.constant = self._constants()

    def _lay_out_shared(self) -> None:
        self.addresses: dict[str, int] = {
            name: parameter_address(n) for n, (name, _) in enumerate(self.kernel.parameters)
        }
        place = SHARED_BASE
        for array in self.kernel.arrays.values():
            if array.space == "shared":
                place = -(-place // array.alignment) * array.alignment
                self.addresses[array.name] = place
                place += array.size
        self.shared_end = max(place, SHARED_BASE + self.launch.shared_bytes)
        self.stride = -(-self.shared_end // 1024) * 1024
        content = np.full(self.stride * len(self.programs), 0xCB, np.uint8)
        self.shared = OwnMemory(content, "shared")
        self.shared_start = self.slot * self.stride

    def _constants(self) -> OwnMemory:
        content = b""
        for array in self.kernel.arrays.values():
            if array.space in ("global", "const"):
                content += bytes(-len(content) % array.alignment)
                self.addresses[array.name] = CONSTANT_BASE + len(content)
                content += array.content.ljust(array.size, b"\0")
        own = LOCAL_BASE
        for array in self.kernel.arrays.values():
            if array.space == "local":
                own = -(-own // array.alignment) * array.alignment
                self.addresses[array.name] = own
                own += array.size
        self.local_bytes = -(-(own - LOCAL_BASE) // 16) * 16
        content += bytes(-len(content) % 16)
        return OwnMemory(np.frombuffer(content, np.uint8).copy(), "constant")

    def local_memory(self) -> tuple[OwnMemory, Lanes]:
        """Memory of each thread, and where that of each lane begins."""
        if self.local is None:
            self.local = OwnMemory(np.zeros(self.local_bytes * self.count, np.uint8), "local")
        return self.local, np.arange(self.count) * self.local_bytes

    def shared_places(self, addresses: Lanes, lanes: Lanes, size: int) -> Lanes:
        """Places in the memory of all programs for addresses of lanes."""
        wide = addresses.astype(np.int64)
        named = wide >> RANK_SHIFT
        if named.any():
            return self._cluster_places(wide, named, lanes, size)
        outside = (wide < SHARED_BASE) | (wide + size > self.shared_end)
        if outside.any():
            text = f"{int(outside.sum())} lanes are outside of shared memory"
            raise PtxError(f"{text}, the first at byte {int(wide[outside][0]) - SHARED_BASE}")
        return wide + self.shared_start[lanes]

    def _cluster_places(self, wide: Lanes, named: Lanes, lanes: Lanes, size: int) -> Lanes:
        """For addresses of other programs of the same cluster, as ``mapa`` makes them."""
        cluster = self.launch.cluster
        own = self.slot[lanes]
        other = np.where(named > 0, own // cluster * cluster + named - 1, own)
        first = other * self.launch.num_threads
        return self.shared_places(wide & ((1 << RANK_SHIFT) - 1), first, size)

    def write(self, slot: int, bits: Lanes, mask: Lanes | None) -> None:
        """Set a register of some lanes."""
        own = self.registers[slot]
        if bits.dtype != own.dtype:
            bits = bits.astype(own.dtype)
        if bits.shape != own.shape:
            bits = np.broadcast_to(bits, own.shape)
        self.registers[slot] = bits if mask is None else np.where(mask, bits, own)

    def write_lanes(self, slot: int, lanes: Lanes, bits: Lanes) -> None:
        """Set a register of lanes that are listed."""
        own = self.registers[slot].copy()
        own[lanes] = bits.astype(own.dtype, copy=False)
        self.registers[slot] = own


CONSTANT_BASE, LOCAL_BASE, LOCAL_MASK = 1 << 60, 1 << 59, (1 << 32) - 1
"""Addresses of a kernel's own arrays and of each thread's, where no tensor is."""


RANK_SHIFT = 24
"""An address of another program's memory has its rank in the cluster, and one, above these bits."""


def parameter_address(number: int) -> int:
    """Where a parameter would be; only descriptors are asked for it."""
    return (1 << 61) + 256 * number


def active(state: State, mask: Lanes | None) -> Lanes:
    """The lanes of a mask."""
    return np.arange(state.count) if mask is None else np.flatnonzero(mask)


def read_as(operand: Operand, kind: Kind) -> Read:
    """How numbers of an operand are read."""
    if isinstance(operand, Register):
        return _register_reader(operand, kind)
    if isinstance(operand, Number):
        value = kind.decode(np.array(number_bits(operand.text, kind), WORDS[kind.bits]))
        return lambda state: value
    if isinstance(operand, Symbol):
        return _symbol_reader(operand.name, kind)
    raise PtxError(f"operand {operand} is no number")


def _register_reader(operand: Register, kind: Kind) -> Read:
    slot, decode, word = operand.slot, kind.decode, WORDS[kind.bits]
    if operand.is_negated:
        return lambda state: ~state.registers[slot]
    if operand.bits == kind.bits:
        return lambda state: decode(state.registers[slot])
    return lambda state: decode(state.registers[slot].astype(word))


def number_bits(text: str, kind: Kind) -> int:
    """An immediate's bits."""
    if text[:2].lower() == "0f" and kind.bits == 32:
        return int(text[2:], 16)
    if text[:2].lower() == "0d" and kind.bits == 64:
        return int(text[2:], 16)
    if kind.is_float and ("." in text or "e" in text.lower()) and not text.lower().startswith("0x"):
        return int(kind.encode(np.array(float(text))))
    return int(text.rstrip("U"), 0) % (1 << kind.bits)


def _symbol_reader(name: str, kind: Kind) -> Read:
    if not name.startswith("%"):
        return lambda state: np.array(state.addresses[name], WORDS[kind.bits])
    if name not in SPECIAL:
        raise PtxError(f"special register {name}")
    find, word = SPECIAL[name], WORDS[kind.bits]
    return lambda state: kind.decode(np.asarray(find(state)).astype(word))


SPECIAL: dict[str, Callable[[State], Any]] = {
    "%tid.x": lambda state: state.thread,
    "%tid.y": lambda state: np.uint32(0),
    "%tid.z": lambda state: np.uint32(0),
    "%ntid.x": lambda state: np.uint32(state.launch.num_threads),
    "%laneid": lambda state: state.thread % WARP,
    "%warpid": lambda state: state.thread // WARP,
    "%ctaid.x": lambda state: state.flat % state.launch.grid[0],
    "%ctaid.y": lambda state: state.flat // state.launch.grid[0] % state.launch.grid[1],
    "%ctaid.z": lambda state: state.flat // (state.launch.grid[0] * state.launch.grid[1]),
    "%nctaid.x": lambda state: np.uint32(state.launch.grid[0]),
    "%nctaid.y": lambda state: np.uint32(state.launch.grid[1]),
    "%nctaid.z": lambda state: np.uint32(state.launch.grid[2]),
    "%cluster_ctarank": lambda state: state.flat % state.launch.cluster,
    "%cluster_ctaid.x": lambda state: state.flat % state.launch.cluster,
    "%clusterid.x": lambda state: state.flat // state.launch.cluster,
    "%smid": lambda state: state.slot,
}
WORD_KINDS = {bits: KINDS[f"b{bits}"] for bits in (8, 16, 32, 64)} | {1: KINDS["pred"]}
