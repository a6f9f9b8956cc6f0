"""The picture of the tiles: what programs touch, in which order, and how much of it again."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch

import tilesmith
import tilesmith.language as hl
from examples.matmul import matmul
from tilesmith.explore.collect import Subject, collect
from tilesmith.explore.reuse import count_reuse
from tilesmith.explore.tiles import Box, Limit, Picture, Program, Step, launch_order, record_tiles
from tilesmith.schedule.schedule import GridOptions


@tilesmith.kernel
def scale(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for rows, columns in hl.tile(x.size()):
        out[rows, columns] = x[rows, columns] * 2
    return out


@tilesmith.kernel
def pick(table: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    out = table.new_empty([index.size(0), table.size(1)])
    for rows in hl.tile(index.size(0)):
        out[rows, :] = table[index[rows], :]
    return out


@tilesmith.kernel
def ragged_sum(values: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    out = values.new_zeros([offsets.size(0) - 1])
    for row in hl.grid(offsets.size(0) - 1):
        total = hl.zeros([], dtype=values.dtype)
        for tile in hl.tile(offsets[row], offsets[row + 1], block_size=4):
            total += values[tile].sum()
        out[row] = total
    return out


def tiles_of(kernel, args, **config) -> dict:
    bound = kernel.bind(args)
    chosen = tilesmith.Config(**config) if config else bound.default_config()
    return collect(bound, [Subject(chosen, "")])["views"][0]["tiles"]


def boxes_on(tiles: dict, tensor: str) -> list[list[list[int]]]:
    """For each program its boxes on a tensor, as starts and lengths."""
    wanted = [i for i, access in enumerate(tiles["accesses"]) if access["tensor"] == tensor]
    return [
        [box[2:] for _, _, boxes in program["steps"] for box in boxes if box[0] in wanted]
        for program in tiles["programs"]
    ]


def program_ids(pid: int, counts: list[int], order: tuple[int, ...], grouping: int):
    """The arithmetic of emitted kernels, written out for two axes."""
    first, second = order
    if grouping == 1:
        place = {first: pid % counts[first], second: pid // counts[first]}
        return place[0], place[1]
    per_group = grouping * counts[second]
    start = pid // per_group * grouping
    rows = min(counts[first] - start, grouping)
    place = {first: start + pid % per_group % rows, second: pid % per_group // rows}
    return place[0], place[1]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("grouping", [1, 2, 3, 8])
def test_programs_are_numbered_as_emitted_code_numbers_them(order, grouping):
    counts = [5, 7]
    found = list(launch_order(counts, GridOptions(order, grouping)))
    assert found == [program_ids(pid, counts, order, grouping) for pid in range(35)]


def test_three_axes_keep_their_order():
    found = list(launch_order([2, 2, 3], GridOptions((2, 0, 1), 2)))
    assert sorted(found) == sorted(product(range(2), range(2), range(3)))
    assert found[:4] == [(0, 0, 0), (0, 0, 1), (1, 0, 0), (1, 0, 1)]


def test_every_element_of_a_result_is_written_once():
    x = torch.randn(37, 50)
    tiles = tiles_of(scale, (x,), block_sizes=[8, 16])
    seen = np.zeros(x.shape, int)
    for boxes in boxes_on(tiles, "out"):
        for row, rows, column, columns in boxes:
            seen[row : row + rows, column : column + columns] += 1
    assert seen.min() == seen.max() == 1
    assert tiles["grids"][0]["counts"] == (5, 4)


def test_rows_that_are_picked_are_where_the_index_says():
    index = torch.tensor([3, 4, 9, 0])
    tiles = tiles_of(pick, (torch.randn(10, 6), index), block_sizes=[4])
    ((first, second, third),) = boxes_on(tiles, "table")
    assert [first, second, third] == [[0, 1, 0, 6], [3, 2, 0, 6], [9, 1, 0, 6]]


def test_ragged_rows_have_as_many_steps_as_they_need():
    offsets = torch.tensor([0, 3, 3, 12])
    tiles = tiles_of(ragged_sum, (torch.randn(12), offsets))
    assert boxes_on(tiles, "values") == [[[0, 3]], [], [[3, 4], [7, 4], [11, 1]]]


def test_steps_follow_the_loop():
    a, b = torch.randn(64, 96), torch.randn(96, 64)
    tiles = tiles_of(matmul, (a, b), block_sizes=[32, 32, 32])
    program = tiles["programs"][0]
    assert [step[0] for step in program["steps"]] == [(0,), (32,), (64,), ()]
    assert boxes_on(tiles, "y")[0] == [[0, 32, 0, 32], [32, 32, 0, 32], [64, 32, 0, 32]]


def test_arguments_stay_as_they_are():
    @tilesmith.kernel
    def double(x: torch.Tensor) -> torch.Tensor:
        for tile in hl.tile(x.size(0)):
            x[tile] = x[tile] * 2
        return x

    x = torch.ones(9)
    tiles_of(double, (x,))
    assert x.tolist() == [1.0] * 9


def test_long_launches_are_shown_in_part_with_the_last_program():
    bound = scale.bind((torch.randn(64, 64),))
    function = bound.function
    arguments = {"x": torch.randn(64, 64), "out": torch.empty(64, 64)}
    sizes = {block.name: 1 for block in function.blocks}
    picture = record_tiles(function, arguments, sizes, {}, Limit(boxes=100, programs=40))
    numbers = [program.number for program in picture.programs]
    assert len(numbers) == 40
    assert numbers[:30] == list(range(30))
    assert numbers[-1] == 64 * 64 - 1
    assert numbers == sorted(set(numbers))


def test_reuse_is_counted_element_by_element():
    """Against a mask of the whole tensor, for boxes that overlap in every way."""
    rng = np.random.default_rng(0)
    picture = Picture()
    shape, seen, expected = (23, 31), np.zeros((23, 31), bool), []
    for number in range(12):
        program, own = Program(0, number, ()), np.zeros(shape, bool)
        for _ in range(3):
            starts = [int(rng.integers(0, n - 1)) for n in shape]
            lengths = [int(rng.integers(1, n - s + 1)) for n, s in zip(shape, starts)]
            part = tuple(slice(s, s + n) for s, n in zip(starts, lengths))
            elements = int(np.prod(lengths))
            ranges = tuple(zip(starts, lengths))
            program.steps.append(Step((), [Box(0, ranges, elements)]))
            fresh = (~own[part]).sum(), (~seen[part]).sum()
            expected.append((2 * elements, 2 * int(fresh[0]), 2 * int(fresh[1])))
            own[part] = seen[part] = True
        picture.programs.append(program)
    counted = count_reuse(picture, ["x"], {"x": 2})
    assert [(s.asked, s.new_to_program, s.new) for p in counted for s in p] == expected
