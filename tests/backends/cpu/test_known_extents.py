"""Axes between constants: their tiles are no longer than that, their loops run that often."""

from __future__ import annotations

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.backends.triton.kernels import schedule
from tests.conformance.case import randn
from tests.schedule import programs
from tilesmith.backends.cpu.loop_ir.statements import Grid
from tilesmith.backends.cpu.lowering.kernel import lower_kernel
from tilesmith.backends.cpu.lowering.known_extents import KnownExtents
from tilesmith.ir.ops.control_flow import Loop
from tilesmith.ir.traversal import walk_function
from tilesmith.ir.types import Dim
from tilesmith.numerics.compare import check_against

SIDES = {"tile_m": 64, "tile_n": 64, "tile_k": 64}


@pytest.mark.parametrize(
    ("extent", "most", "trips"),
    [(1, 1, 1), (33, 33, 1), (63, 63, 1), (64, 64, 1), (65, 64, 2), (1009, 64, 16), (0, 1, 1)],
)
def test_tiles_are_no_longer_than_their_axis(extent: int, most: int, trips: int) -> None:
    function = programs.matmul(extent, 40, extent, "f32")
    extents = KnownExtents.of(function, schedule("cpu", symbols=SIDES))
    assert extents.most(Dim.of("tile_m")) == extents.most(Dim.of("tile_k")) == most
    assert extents.elements((Dim.of("tile_m"), Dim.of("tile_n"))) == 40 * most
    (loop,) = [op for op in walk_function(function) if isinstance(op, Loop)]
    assert extents.iterations(loop) == trips


def test_tiles_of_another_tile_are_of_unknown_length() -> None:
    function = programs.nested_tiles(1000)
    loops = [op for op in walk_function(function) if isinstance(op, Loop)]
    blocks = {block.name: 64 for block in function.blocks}
    extents = KnownExtents.of(function, schedule("cpu", symbols=blocks))
    inner = [op for op in loops if not set(op.blocks) & set(extents.blocks)]
    assert inner
    for op in inner:
        assert extents.iterations(op) == 8
        assert extents.most(Dim.of(op.blocks[0])) == 64


def test_what_a_program_computes_is_counted_within_its_axes() -> None:
    def work(m: int, k: int) -> int:
        function = programs.matmul(m, 64, k, "f32")
        kernel = lower_kernel(function, schedule("cpu", symbols=SIDES))
        return next(part.work for part in kernel.body if isinstance(part, Grid))

    product, result = 33 * 64 * 16 // 8, 33 * 64
    assert work(33, 16) - product < 4 * result
    assert work(33, 16 * 64) > 16 * 33 * 64 * 64 // 8


@helion.kernel(backend="cpu", static_shapes=True)
def whole_block_beside_a_short_axis(
    a: torch.Tensor, b: torch.Tensor, c: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    out, moved = torch.empty([a.size(0), 64], dtype=torch.float32), torch.empty_like(c)
    block = hl.register_block_size(64, 64)
    for tile_m in hl.tile(a.size(0)):
        columns = hl.arange(block)
        product = hl.dot(a[tile_m, :], b[:, columns])
        for tile_n in hl.tile(c.size(1), block_size=block):
            moved[tile_m, tile_n] = c[tile_m, tile_n] + 1
        hl.store(out, [tile_m.index, columns], product)
    return out, moved


@pytest.mark.parametrize("length", [1, 20, 33, 40, 48, 49, 64])
def test_tiles_outside_of_the_loops_of_their_block_are_whole(length: int) -> None:
    a, b, c = randn(70, 20), randn(20, 64), randn(70, length)
    out, moved = whole_block_beside_a_short_axis(a, b, c)
    check_against(out, a.double() @ b.double(), reduction_length=20)
    assert torch.equal(moved, c + 1)
