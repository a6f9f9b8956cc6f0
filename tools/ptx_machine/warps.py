"""What the 32 lanes of a warp do together: exchange words, count, multiply small matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from tools.ptx_machine import arithmetic
from tools.ptx_machine.access import Place, check_aligned
from tools.ptx_machine.kinds import KINDS, Lanes
from tools.ptx_machine.ordinary import destination
from tools.ptx_machine.state import WARP, State, Step, active, read_as
from tools.ptx_machine.text import Instruction, PtxError, Vector


class PartOfWarpError(PtxError):
    """Lanes of a warp are missing that an instruction waits for."""


def whole_warps(mask: Lanes) -> Lanes:
    """Lanes of a mask all of whose warp are in it."""
    return np.repeat(mask.reshape(-1, WARP).all(1), WARP)


def check_whole(mask: Lanes | None, what: str) -> None:
    """Raise where lanes of a warp are missing that the instruction waits for."""
    if mask is not None and (mask & ~whole_warps(mask)).any():
        raise PartOfWarpError(f"{what} by a part of a warp")


def decode_shuffle(instruction: Instruction) -> Step:
    """``shfl.sync``: a word of another lane."""
    mode = instruction.parts[2]
    target, source, amount, clamp, _ = instruction.operands
    targets = target.parts if isinstance(target, Vector) else (target,)
    slots = [destination(x) for x in targets]
    read = read_as(source, KINDS["b32"])
    read_amount, read_clamp = read_as(amount, KINDS["u32"]), read_as(clamp, KINDS["u32"])

    def run(state: State, mask: Lanes | None) -> None:
        check_whole(mask, "shuffle")
        lane = (state.thread % WARP).astype(np.int64)
        b = np.asarray(read_amount(state)).astype(np.int64) & 31
        c = np.asarray(read_clamp(state)).astype(np.int64)
        segment = c >> 8 & 31
        first, last = lane & segment, (lane & segment) | (c & 31 & ~segment)
        found = _partner(mode, lane, b, first | (b & ~segment))
        is_valid = found >= last if mode == "up" else found <= last
        other = np.where(is_valid, found, lane)
        places = np.arange(state.count) - lane + other
        values = np.broadcast_to(read(state), (state.count,))[places]
        state.write(slots[0], values, mask)
        if len(slots) > 1 and slots[1] >= 0:
            state.write(slots[1], is_valid, mask)

    return run


def _partner(mode: str, lane: Lanes, b: Lanes, indexed: Lanes) -> Lanes:
    """The lane that is asked, which may not be there."""
    found = {"up": lane - b, "down": lane + b, "bfly": lane ^ b, "idx": indexed}
    return found[mode]


def decode_vote(instruction: Instruction) -> Step:
    """``vote.sync``: all, any, or a word with a bit of each lane."""
    mode = instruction.parts[2]
    slot, read = (
        destination(instruction.operands[0]),
        read_as(instruction.operands[1], KINDS["pred"]),
    )

    def run(state: State, mask: Lanes | None) -> None:
        check_whole(mask, "vote")
        votes = np.broadcast_to(read(state), (state.count,)).reshape(-1, WARP)
        if mode == "ballot":
            words = (votes.astype(np.uint64) << np.arange(WARP, dtype=np.uint64)).sum(1)
            found = words.astype(np.uint32)
        else:
            found = votes.all(1) if mode == "all" else votes.any(1)
        state.write(slot, np.repeat(found, WARP), mask)

    return run


def decode_warp_reduction(instruction: Instruction) -> Step:
    """``redux.sync``: one number of all lanes."""
    parts = instruction.parts
    kind, name = KINDS[parts[-1]], parts[2]
    compute = np.bitwise_or if name == "or" else arithmetic.BINARY[name]
    if "NaN" in parts:
        compute = arithmetic.with_nan(compute)
    slot, read = destination(instruction.operands[0]), read_as(instruction.operands[1], kind)

    def run(state: State, mask: Lanes | None) -> None:
        check_whole(mask, "reduction of a warp")
        values = np.broadcast_to(read(state), (state.count,)).reshape(-1, WARP)
        found = values[:, 0]
        for lane in range(1, WARP):
            found = compute(found, values[:, lane])
        state.write(slot, kind.encode(np.repeat(found, WARP)), mask)

    return run


def decode_election(instruction: Instruction) -> Step:
    """``elect.sync``: the first lane of a warp."""
    target = instruction.operands[0]
    assert isinstance(target, Vector)
    leader, chosen = (destination(x) for x in target.parts)

    def run(state: State, mask: Lanes | None) -> None:
        check_whole(mask, "election")
        if leader >= 0:
            state.write(leader, np.array(0, np.uint32), mask)
        state.write(chosen, state.thread % WARP == 0, mask)

    return run


def warps_of(lanes: Lanes) -> Lanes:
    """Lanes by warp."""
    return lanes.reshape(-1, WARP)


def _rows(state: State, place: Place, warps: Lanes, count: int) -> Lanes:
    """Where the eight rows of each of so many matrices lie, by warp, matrix and row."""
    lanes = warps[:, : 8 * count].reshape(-1)
    memory, places = place.find(state, lanes, 16)
    assert memory is state.shared
    check_aligned(places, 16)
    return places.reshape(len(warps), count, 8)


def decode_matrix_load(instruction: Instruction) -> Step:
    """``ldmatrix``: matrices of 8 x 8 halves, spread over a warp; two numbers to a lane."""
    parts = instruction.parts
    count = int(next(part for part in parts if part in ("x1", "x2", "x4"))[1:])
    target = instruction.operands[0]
    assert isinstance(target, Vector)
    slots = [destination(x) for x in target.parts]
    place, is_turned = Place(instruction.operands[1], "shared"), "trans" in parts
    if "b8" in parts:
        raise PtxError("ldmatrix of bytes")

    def load(state: State, mask: Lanes | None) -> None:
        check_whole(mask, "ldmatrix")
        lanes = active(state, mask)
        warps = warps_of(lanes)
        rows = _rows(state, place, warps, count)
        leaders = np.repeat(warps[:, 0], rows[0].size)
        state.extra["watch"].load(state.shared, rows.reshape(-1), leaders, 16)
        words = state.shared.words(16)
        matrices = words[rows[..., None] // 2 + np.arange(8)]
        if is_turned:
            matrices = matrices.swapaxes(-1, -2)
        pairs = np.ascontiguousarray(matrices).view(np.uint32).reshape(len(warps), count, WARP)
        for number, slot in enumerate(slots):
            state.write_lanes(slot, lanes, pairs[:, number].reshape(-1))

    return load


def decode_matrix_store(instruction: Instruction) -> Step:
    """``stmatrix``: the other way round."""
    parts = instruction.parts
    count = int(next(part for part in parts if part in ("x1", "x2", "x4"))[1:])
    source = instruction.operands[1]
    assert isinstance(source, Vector)
    reads = [read_as(x, KINDS["b32"]) for x in source.parts]
    place, is_turned = Place(instruction.operands[0], "shared"), "trans" in parts
    if "b8" in parts:
        raise PtxError("stmatrix of bytes")

    def store(state: State, mask: Lanes | None) -> None:
        check_whole(mask, "stmatrix")
        warps = warps_of(active(state, mask))
        rows = _rows(state, place, warps, count)
        leaders = np.repeat(warps[:, 0], 64)
        words = state.shared.words(16)
        for number, read in enumerate(reads):
            pairs = np.broadcast_to(read(state), (state.count,))[warps]
            matrices = np.ascontiguousarray(pairs).view(np.uint16).reshape(-1, 8, 8)
            if is_turned:
                matrices = matrices.swapaxes(-1, -2)
            places = rows[:, number, :, None] + 2 * np.arange(8)
            plain = np.ascontiguousarray(matrices).reshape(-1)
            state.extra["watch"].store(state.shared, places.reshape(-1), leaders, plain)
            words[places // 2] = matrices

    return store


def decode_product(instruction: Instruction) -> Step:
    """``mma.sync``: a product of small matrices whose parts the lanes of a warp hold."""
    parts = instruction.parts
    shape = next(part for part in parts if part.startswith("m16"))
    k = int(shape.split("k")[1])
    out, left, right, add = (_vector(x) for x in instruction.operands)
    kinds = [part for part in parts if part in KINDS]
    to, x_kind, y_kind, from_kind = (KINDS[name] for name in kinds)
    readers = [[read_as(x, KINDS["b32"]) for x in v.parts] for v in (left, right)]
    adds = [read_as(x, KINDS["b32"]) for x in add.parts]
    slots = [destination(x) for x in out.parts]
    if to.bits != 32:
        raise PtxError("mma.sync with results of 16 or 64 bits")
    least, most = (-(1 << 31), (1 << 31) - 1) if "satfinite" in parts else (None, None)

    def multiply(state: State, mask: Lanes | None) -> None:
        check_whole(mask, "mma.sync")
        lanes = active(state, mask)
        warps = warps_of(lanes)
        x = fragment(state, readers[0], warps, x_kind, (16, k), is_left=True)
        y = fragment(state, readers[1], warps, y_kind, (8, k), is_left=False)
        words = [np.broadcast_to(read(state), (state.count,))[warps] for read in adds]
        z = from_kind.decode(np.stack(words, -1))
        products = np.einsum("wmk,wnk->wmn", wide(x), wide(y))
        found = spread(products) + z
        if least is not None:
            found = np.clip(found, least, most)
        found = to.encode(found)
        for number, slot in enumerate(slots):
            state.write_lanes(slot, lanes, found[..., number].reshape(-1))

    return multiply


def wide(values: Lanes) -> Lanes:
    """Numbers whose products are exact."""
    return values.astype(np.int64 if values.dtype.kind in "iu" else np.float64)


def _vector(operand: Any) -> Vector:
    if not isinstance(operand, Vector):
        return Vector((operand,))
    return operand


def fragment(
    state: State,
    reads: list[Any],
    warps: Lanes,
    kind: Any,
    shape: tuple[int, int],
    *,
    is_left: bool,
) -> Lanes:
    """The matrix (rows, k) that registers of each warp hold.

    A register has the numbers of 32 bits along k: of rows ``lane // 4`` and eight below (left
    operands), first for the lower half of k and then for the upper.
    """
    each = 32 // kind.bits
    words = np.stack([np.broadcast_to(read(state), (state.count,))[warps] for read in reads], 1)
    word = {8: np.uint8, 16: np.uint16, 32: np.uint32}[kind.bits]
    parts = np.ascontiguousarray(words).view(word).reshape(len(warps), len(reads), 8, 4, each)
    numbers = kind.decode(parts)
    rows, k = shape
    chunks = k // (4 * each)
    if is_left:  # registers: (chunk along k, upper or lower eight rows)
        grouped = numbers.reshape(-1, chunks, 2, 8, 4, each)
        return grouped.transpose(0, 2, 3, 1, 4, 5).reshape(-1, rows, k)
    return numbers.reshape(-1, chunks, 8, 4, each).transpose(0, 2, 1, 3, 4).reshape(-1, rows, k)


def spread(products: Lanes) -> Lanes:
    """Results (16 x 8) as lanes hold them: rows ``lane // 4`` and eight below, two columns each."""
    split = products.reshape(-1, 2, 8, 4, 2)
    return split.transpose(0, 2, 3, 1, 4).reshape(-1, WARP, 4)
