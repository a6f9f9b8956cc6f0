"""Products of four warps whose operands lie in shared memory (``wgmma``).

Each warp computes its sixteen rows. Results are there at once, as code that is right cannot tell;
that operands stay as they were until the product has been waited for is checked.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from tools.ptx_machine.bulk import swizzled
from tools.ptx_machine.kinds import KINDS, WORDS, Kind, Lanes
from tools.ptx_machine.ordinary import destination
from tools.ptx_machine.state import WARP, Read, State, Step, active, read_as
from tools.ptx_machine.text import Instruction, Number, PtxError, Register, Vector
from tools.ptx_machine.warps import check_whole, fragment, spread, warps_of, wide

SWIZZLES = {0: 16, 1: 128, 2: 64, 3: 32}
"""Bytes of a row, by the highest two bits of a matrix descriptor."""


def decode_group_product(instruction: Instruction) -> Step:
    """``wgmma``: products, their groups and waits."""
    parts = instruction.parts
    if parts[1] == "mma_async":
        return _decode_product(instruction)
    if parts[1] == "wait_group":
        assert isinstance(instruction.operands[0], Number)
        return _decode_wait(int(instruction.operands[0].text))
    if parts[1] == "commit_group":
        return _commit
    return lambda state, mask: None


def _commit(state: State, mask: Lanes | None) -> None:
    for warp in _warp_numbers(state, mask):
        begun = state.extra.setdefault("products", {}).setdefault(warp, [[]])
        begun.append([])


def _warp_numbers(state: State, mask: Lanes | None) -> list[int]:
    return (active(state, mask)[::WARP] // WARP).tolist()


def _decode_wait(allowed: int) -> Step:
    def wait(state: State, mask: Lanes | None) -> None:
        for warp in _warp_numbers(state, mask):
            groups = state.extra.get("products", {}).get(warp, [[]])
            while len(groups) - 1 > allowed:
                for places, octets in groups.pop(0):
                    leader = np.full(len(places), warp * WARP)
                    state.extra["watch"].load(state.shared, places, leader, 1)
                    if not np.array_equal(state.shared.words(8)[places], octets):
                        raise PtxError("an operand changed while a product was under way")

    return wait


class _Matrix:
    """An operand in shared memory: ``rows`` by ``k`` numbers."""

    def __init__(self, read: Read, kind: Kind, shape: tuple[int, int], *, is_turned: bool) -> None:
        self._read, self._kind, self._shape = read, kind, shape
        self._is_turned = is_turned

    def places(self, state: State, warps: Lanes) -> Lanes:
        """Where its numbers lie, for each warp."""
        words = np.broadcast_to(self._read(state), (state.count,))[warps[:, 0]].astype(np.uint64)
        start, leading, stride = (
            ((words >> np.uint64(shift)) & np.uint64(0x3FFF)).astype(np.int64) * 16
            for shift in (0, 16, 32)
        )
        if np.any(words >> np.uint64(49) & np.uint64(7)):
            raise PtxError("a matrix whose rows begin at an offset")
        modes = np.unique(words >> np.uint64(62))
        if len(modes) != 1:
            raise PtxError("matrices of several layouts in one instruction")
        width = SWIZZLES[int(modes[0])]
        find = self._turned if self._is_turned else self._straight
        offsets = find(width, leading[:, None, None], stride[:, None, None])
        found = start[:, None, None] + offsets
        found = swizzled(found, width if width > 16 else 0)
        lanes = np.repeat(warps[:, 0], found[0].size)
        size = self._kind.bits // 8
        return state.shared_places(found.reshape(-1), lanes, size).reshape(found.shape)

    def _straight(self, width: int, leading: Lanes, stride: Lanes) -> Lanes:
        """Numbers of a row lie side by side."""
        rows, k = (np.arange(n) for n in self._shape)
        octets = k * (self._kind.bits // 8)
        along = octets[None, None, :] if width > 16 else (octets % 16 + octets // 16 * leading)
        return (rows % 8 * width)[None, :, None] + (rows // 8)[None, :, None] * stride + along

    def _turned(self, width: int, leading: Lanes, stride: Lanes) -> Lanes:
        """Numbers of a column do."""
        rows, k = (np.arange(n) for n in self._shape)
        octets = rows * (self._kind.bits // 8)
        if width == 16:
            leading, stride = stride, leading
        along = (octets % width)[None, :, None] + (octets // width)[None, :, None] * leading
        return along + (k % 8 * width)[None, None, :] + (k // 8)[None, None, :] * stride

    def load(self, state: State, places: Lanes) -> Lanes:
        size = self._kind.bits // 8
        words = state.shared.words(self._kind.bits)[places // size]
        return self._kind.decode(words.astype(WORDS[self._kind.bits], copy=False))


def _decode_product(instruction: Instruction) -> Step:
    shape, kinds = _shape_and_kinds(instruction)
    _, n, k = shape
    to, left_kind, right_kind = kinds
    out, left, right, scale, *flags = instruction.operands
    assert isinstance(out, Vector)
    signs = [int(flag.text) for flag in flags if isinstance(flag, Number)] or [1, 1]
    is_loaded = isinstance(left, Register)
    turned = [bool(x) for x in signs[2:]]
    left_turned = turned[0] if is_loaded and turned else False
    right_turned = turned[-1] if turned else False
    x_matrix = (
        _Matrix(read_as(left, KINDS["u64"]), left_kind, (64, k), is_turned=left_turned)
        if (is_loaded)
        else None
    )
    y_matrix = _Matrix(read_as(right, KINDS["u64"]), right_kind, (n, k), is_turned=right_turned)
    x_reads = [read_as(x, KINDS["b32"]) for x in left.parts] if isinstance(left, Vector) else []
    reads = [read_as(x, KINDS["b32"]) for x in out.parts]
    slots = [destination(x) for x in out.parts]
    scaled = _scale_reader(scale)
    if to.bits != 32:
        raise PtxError("wgmma with results of 16 bits")

    def multiply(state: State, mask: Lanes | None) -> None:
        check_whole(mask, "wgmma")
        lanes = active(state, mask)
        warps = warps_of(lanes)
        used: list[Lanes] = []
        if x_matrix is None:
            x = fragment(state, x_reads, warps, left_kind, (16, k), is_left=True)
        else:
            places = x_matrix.places(state, warps)
            row = warps[:, 0] // WARP % 4 * 16
            own = row[:, None] + np.arange(16)
            places = np.take_along_axis(places, own[:, :, None], 1)
            used.append(places)
            x = x_matrix.load(state, places)
        places = y_matrix.places(state, warps)
        used.append(places)
        y = y_matrix.load(state, places)
        kinds_used = (left_kind, right_kind)[-len(used) :]
        for each, kind in zip(used, kinds_used):
            _look(state, each, warps, kind.bits // 8)
        _remember(state, warps, used)
        products = np.matmul(wide(x) * signs[0], (wide(y) * signs[1]).swapaxes(1, 2))
        words = np.stack(
            [np.broadcast_to(read(state), (state.count,))[warps] for read in reads], -1
        )
        added = np.where(scaled(state, lanes).reshape(-1, WARP)[..., None], to.decode(words), 0)
        blocks = products.reshape(len(warps), 16, n // 8, 8).transpose(0, 2, 1, 3)
        placed = spread(blocks.reshape(-1, 16, 8)).reshape(len(warps), n // 8, WARP, 4)
        found = to.encode(placed.transpose(0, 2, 1, 3).reshape(len(warps), WARP, -1) + added)
        for number, slot in enumerate(slots):
            state.write_lanes(slot, lanes, np.ascontiguousarray(found[..., number]).reshape(-1))

    return multiply


def _look(state: State, places: Lanes, warps: Lanes, size: int) -> None:
    leaders = np.repeat(warps[:, 0], places[0].size)
    state.extra["watch"].load(state.shared, places.reshape(-1), leaders, size)


def _remember(state: State, warps: Lanes, used: list[Lanes]) -> None:
    """What operands were, to see at the wait that they still are."""
    products = state.extra.setdefault("products", {})
    for number, warp in enumerate((warps[:, 0] // WARP).tolist()):
        groups = products.setdefault(warp, [[]])
        for places in used:
            mine = np.unique(places[number].reshape(-1))  # first bytes tell enough
            groups[-1].append((mine, state.shared.words(8)[mine].copy()))


def _scale_reader(operand: Any) -> Any:
    if isinstance(operand, Number):
        value = operand.text != "0"
        return lambda state, lanes: np.full(len(lanes), value)
    read = read_as(operand, KINDS["pred"])
    return lambda state, lanes: np.broadcast_to(read(state), (state.count,))[lanes]


def _shape_and_kinds(instruction: Instruction) -> tuple[tuple[int, int, int], list[Kind]]:
    found = re.search(r"\.m(\d+)n(\d+)k(\d+)", instruction.opcode)
    assert found is not None
    kinds = [KINDS[part] for part in instruction.parts if part in KINDS]
    return (int(found[1]), int(found[2]), int(found[3])), kinds
