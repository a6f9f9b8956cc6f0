"""Register blocks: they fit the registers, suit the result and leave room around it."""

from __future__ import annotations

import pytest

from tilesmith.backends.cpu.dots.shapes import (
    MAX_ROWS_IN_PLACE,
    padded_shape,
    register_block,
    round_up,
    tile_block,
)
from tilesmith.dtypes import F32, F64, DType

SIZES = (1, 2, 7, 8, 13, 15, 16, 17, 31, 33, 48, 64, 65, 100, 127, 128, 200, 256, 1000)


@pytest.mark.parametrize(("lanes", "registers"), [(16, 32), (8, 16)])
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_blocks_fit_the_registers(lanes: int, registers: int, dtype: DType) -> None:
    for rows in (*SIZES, None):
        for columns in (*SIZES, None):
            block = register_block(lanes, dtype, (rows, columns))
            assert block.rows * block.vectors + block.vectors + 1 <= registers
            assert block.lanes * dtype.itemsize == lanes * 4


@pytest.mark.parametrize("lanes", [16, 8])
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("most", [16, MAX_ROWS_IN_PLACE])
def test_padding_has_room_for_the_block_of_any_bound(lanes: int, dtype: DType, most: int) -> None:
    for rows in SIZES:
        for columns in SIZES:
            room = padded_shape(lanes, dtype, rows, columns)
            for wider in (columns, 1 << (columns - 1).bit_length()):
                for taller in (rows, 1 << (rows - 1).bit_length(), None):
                    block = register_block(lanes, dtype, (taller, wider), most)
                    assert round_up(rows, block.rows) <= room[0]
                    assert round_up(columns, block.columns) <= room[1]


def test_padding_has_room_for_tiles() -> None:
    for rows in SIZES:
        for columns in SIZES:
            room = padded_shape(16, F32, rows, columns)
            for wider in (columns, 1 << (columns - 1).bit_length()):
                for taller in (rows, 1 << (rows - 1).bit_length()):
                    block = tile_block(16, (taller, wider))
                    assert round_up(rows, block.rows) <= room[0]
                    assert round_up(columns, block.columns) <= room[1]


def test_rows_of_results_do_not_compete_for_the_cache() -> None:
    assert padded_shape(16, F32, 64, 256)[1] == 272
    assert padded_shape(16, F32, 64, 128)[1] == 128
    assert padded_shape(8, F64, 64, 128)[1] == 132


def test_tiles_stand_two_by_two_unless_one_is_enough() -> None:
    shapes = {(16, 16): (16, 16), (17, 16): (32, 16), (1, 17): (16, 32), (None, None): (32, 32)}
    for bounds, expected in shapes.items():
        block = tile_block(16, bounds)
        assert (block.rows, block.columns) == expected


def test_typical_blocks() -> None:
    def shape(*arguments: int) -> tuple[int, int]:
        block = register_block(16, F32, (arguments[0], arguments[1]), *arguments[2:])
        return block.rows, block.columns

    assert shape(252, 512) == (14, 32)
    assert shape(128, 128, MAX_ROWS_IN_PLACE) == (8, 32)
    assert shape(1, 512) == (1, 64)
    assert shape(64, 16)[1] == 16
