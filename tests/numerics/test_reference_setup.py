"""Tiles of the reference: large grids tiles, loops as configured, memory bounded."""

from __future__ import annotations

import torch

from tests.numerics.judged_kernels import histogram, matmul, row_sums, softmax
from tilesmith.ir.function import Function
from tilesmith.numerics.reference_setup import (
    FEWEST_PROGRAMS,
    GROWN_BYTES,
    MAX_BYTES,
    choose_num_programs,
    needs_all_programs,
    program_bytes,
    reference_sizes,
)


def function_of_product(m: int, n: int, k: int) -> Function:
    def meta(*shape: int) -> torch.Tensor:
        return torch.empty(1, dtype=torch.bfloat16).expand(shape)

    # Memory that nobody touches costs nothing; what is written must have its own.
    out = torch.empty(m, n, dtype=torch.bfloat16)
    return matmul.bind((meta(m, k), meta(k, n), out)).function


def test_grid_blocks_grow_and_loop_blocks_stay() -> None:
    function = function_of_product(1024, 1024, 1024)
    sizes = reference_sizes(function, [64, 64, 32])
    assert sizes["tile_k"] == 32
    assert min(sizes["tile_m"], sizes["tile_n"]) >= 256
    assert program_bytes(function, sizes) <= GROWN_BYTES


def test_blocks_do_not_outgrow_their_axis() -> None:
    sizes = reference_sizes(function_of_product(40, 24, 16), [16, 16, 16])
    assert sizes == {"tile_m": 64, "tile_n": 32, "tile_k": 16}


def test_blocks_stay_where_they_decide_what_host_code_makes() -> None:
    sizes = reference_sizes(function_of_product(1024, 1024, 1024), [64, 128, 32], may_grow=False)
    assert sizes == {"tile_m": 64, "tile_n": 128, "tile_k": 32}


def test_tiles_shrink_to_what_memory_holds() -> None:
    x = torch.empty(1).expand(1 << 13, 1 << 16)
    function = softmax.bind((x, torch.empty(x.shape))).function
    sizes = reference_sizes(function, [1 << 14])
    assert sizes["tile"] < 1 << 12
    assert program_bytes(function, sizes) <= MAX_BYTES


def test_long_programs_are_few() -> None:
    small, large = function_of_product(1024, 1024, 1024), function_of_product(8192, 8192, 1 << 16)
    blocks = {"tile_m": 128, "tile_n": 128, "tile_k": 32}
    assert choose_num_programs(small, blocks) > choose_num_programs(large, blocks)
    assert choose_num_programs(large, blocks) == FEWEST_PROGRAMS
    assert choose_num_programs(large, blocks, is_on_host=False) > FEWEST_PROGRAMS


def test_programs_that_update_shared_memory_need_each_other() -> None:
    assert needs_all_programs(histogram.bind((torch.ones(9), torch.zeros(3))).function)
    assert not needs_all_programs(row_sums.bind((torch.ones(9, 2), torch.zeros(9))).function)


def test_sums_in_narrow_types_keep_the_number_of_programs() -> None:
    wide = histogram.bind((torch.ones(4096), torch.zeros(64))).function
    narrow = histogram.bind((torch.ones(4096).half(), torch.zeros(64).half())).function
    assert reference_sizes(wide, [16]) == {"tile": 4096}
    assert reference_sizes(narrow, [16]) == {"tile": 16}
