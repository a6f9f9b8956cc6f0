"""Copies of boxes of a tensor by the copy engine (``cp.async.bulk.tensor``).

A descriptor says how a box lies in a program's memory: rows of at most 128 bytes, whose pieces of
16 bytes change places by the row they are in. What is outside of the tensor is read as zeros and
not written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tools.ptx_machine.access import Place
from tools.ptx_machine.arrivals import barriers_of
from tools.ptx_machine.kinds import KINDS, WORDS, Lanes
from tools.ptx_machine.state import Read, State, Step, active, read_as
from tools.ptx_machine.text import Address, Instruction, Number, PtxError


@dataclass(frozen=True)
class Description:
    """A tensor as the copy engine sees it; sizes and strides (in bytes), the outermost first."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    element: int
    """Bytes."""
    swizzle: int
    """Bytes of a row within which pieces change places; 0 if they do not."""

    @cached_property
    def places(self) -> Lanes:
        """Bytes from the start of a box of each of its elements, before pieces change places."""
        return np.arange(int(np.prod(self.box))).reshape(self.box) * self.element

    @property
    def octets(self) -> int:
        """Bytes of a box."""
        return int(np.prod(self.box)) * self.element


def swizzled(places: Lanes, width: int) -> Lanes:
    """Pieces of 16 bytes change places by the row of 128 bytes that they are in."""
    if not width:
        return places
    return places ^ ((places >> 3) & (width - 1) & ~15)


def decode_bulk(instruction: Instruction) -> Step:
    """Loads, stores, sums, and groups of stores."""
    parts, operands = instruction.parts, instruction.operands
    if parts[-1] == "commit_group" or "commit_group" in parts:
        return lambda state, mask: None
    if "wait_group" in parts:
        allowed = int(operands[0].text) if isinstance(operands[0], Number) else 0
        return _decode_wait(allowed)
    if "tensor" not in parts:
        raise PtxError("bulk copies without a descriptor")
    is_load = any(part.startswith("mbarrier") for part in parts)
    return _decode_load(instruction) if is_load else _decode_store(instruction)


class _Box:
    """Operands of one instruction: a descriptor and the first element of a box."""

    def __init__(self, address: Address) -> None:
        self._descriptor = read_as(address.base, KINDS["u64"])
        assert address.coordinates is not None
        self._coordinates: list[Read] = [
            read_as(x, KINDS["s32"]) for x in reversed(address.coordinates.parts)
        ]

    def find(self, state: State, lane: int) -> tuple[Description, Lanes, Lanes]:
        """The descriptor, addresses of all elements of the box, and which are in the tensor."""
        pointer = int(np.broadcast_to(self._descriptor(state), (state.count,))[lane])
        if pointer not in state.launch.descriptions:
            raise PtxError("no descriptor at this address")
        found = state.launch.descriptions[pointer]
        address = np.int64(found.address)
        inside = np.bool_(True)
        for axis, read in enumerate(self._coordinates):
            first = int(np.broadcast_to(read(state), (state.count,))[lane])
            index = first + np.arange(found.box[axis])
            shape = [1] * len(found.box)
            shape[axis] = -1
            address = address + (index * found.strides[axis]).reshape(shape)
            inside = inside & ((index >= 0) & (index < found.shape[axis])).reshape(shape)
        return found, np.asarray(address), np.broadcast_to(inside, found.box)


def _shared_places(state: State, start: int, lane: int, found: Description) -> Lanes:
    """Where elements of a box lie; the pieces follow the address, not the place in the box."""
    if start % 128:
        raise PtxError("a box begins at no multiple of 128 bytes")
    places = swizzled(start + found.places, found.swizzle)
    return state.shared_places(places.reshape(-1), np.full(places.size, lane), found.element)


def _decode_load(instruction: Instruction) -> Step:
    target, source, barrier = instruction.operands[:3]
    assert isinstance(source, Address)
    to, counted, box = Place(target, "shared"), Place(barrier, "shared"), _Box(source)
    is_shared = any(part.startswith("multicast") for part in instruction.parts)
    ranks = read_as(instruction.operands[3], KINDS["u16"]) if is_shared else None

    def load(state: State, mask: Lanes | None) -> None:
        for lane in active(state, mask).tolist():
            found, addresses, inside = box.find(state, lane)
            start = int(to.addresses(state, np.array([lane]))[0])
            for receiver in _receivers(state, ranks, lane):
                places = _shared_places(state, start, receiver, found)
                barrier = int(counted.find_for(state, lane, receiver, 8))
                copy = _loading(state, found, addresses, inside, places, (barrier, lane))
                _later(state, barrier, copy, found.octets)

    return load


def _receivers(state: State, ranks: Read | None, lane: int) -> list[int]:
    """A lane of each program of the cluster that gets the box."""
    if ranks is None:
        return [lane]
    bits = int(np.broadcast_to(ranks(state), (state.count,))[lane])
    first = lane // state.launch.num_threads // state.launch.cluster * state.launch.cluster
    chosen = [rank for rank in range(state.launch.cluster) if bits >> rank & 1]
    return [(first + rank) * state.launch.num_threads for rank in chosen]


def _loading(
    state: State,
    found: Description,
    addresses: Lanes,
    inside: Lanes,
    places: Lanes,
    begun: tuple[int, int],
) -> Callable[[], None]:
    def copy() -> None:
        values = np.zeros(inside.size, WORDS[8 * found.element])
        chosen = inside.reshape(-1)
        if chosen.any():
            wanted = addresses.reshape(-1)[chosen]
            values[chosen] = state.launch.memory.load(wanted, 8 * found.element)
        state.extra["watch"].copy_in(state.shared, places, values, *begun)
        state.shared.store(places, values)

    return copy


def _later(state: State, barrier: int, copy: Callable[[], None], octets: int) -> None:
    """Do it now, or when somebody waits for the barrier."""
    if not state.extra.get("late"):
        copy()
        barriers_of(state).deliver(barrier, octets)
        return
    state.extra.setdefault("pending", {}).setdefault(barrier, []).append((copy, octets))


def deliver(state: State, wanted: set[int]) -> bool:
    """Do the copies that these barriers count; whether there were any."""
    pending = state.extra.get("pending", {})
    due = [(barrier, pending.pop(barrier)) for barrier in wanted if barrier in pending]
    for barrier, copies in due:
        for copy, octets in copies:
            copy()
            barriers_of(state).deliver(barrier, octets)
    return bool(due)


def _decode_store(instruction: Instruction) -> Step:
    target, source = instruction.operands[:2]
    assert isinstance(target, Address)
    box, start_of = _Box(target), Place(source, "shared")

    def store(state: State, mask: Lanes | None) -> None:
        for lane in active(state, mask).tolist():
            found, addresses, inside = box.find(state, lane)
            start = int(start_of.addresses(state, np.array([lane]))[0])
            places = _shared_places(state, start, lane, found)
            chosen = inside.reshape(-1)

            def copy(
                addresses: Lanes = addresses,
                places: Lanes = places,
                lane: int = lane,
                chosen: Lanes = chosen,
                bits: int = 8 * found.element,
            ) -> None:
                mine = np.full(int(chosen.sum()), lane)
                state.extra["watch"].load(state.shared, places[chosen], mine, bits // 8)
                values = state.shared.load(places[chosen], bits)
                state.launch.memory.store(addresses.reshape(-1)[chosen], values)

            if state.extra.get("late"):
                state.extra.setdefault("stores", {}).setdefault(lane, []).append(copy)
            else:
                copy()

    return store


def _decode_wait(allowed: int) -> Step:
    """Let at most so many stores of each lane stay under way; each stands for a group."""

    def wait(state: State, mask: Lanes | None) -> None:
        stores = state.extra.get("stores", {})
        for lane in active(state, mask).tolist():
            begun = stores.get(lane, [])
            while len(begun) > allowed:
                begun.pop(0)()

    return wait


def finish(state: State) -> None:
    """Stores that nobody waited for."""
    for begun in state.extra.get("stores", {}).values():
        for copy in begun:
            copy()
