"""Reads and writes of one program happen in the order in which they are written down."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tilesmith as helion
from tests.backends.cpu import memory_order_kernels as kernels
from tests.host_backends import BACKENDS, lanes, on_backend

W = lanes()
LENGTHS = (2, W - 1, W, W + 1, 53)
BLOCKS = (1, 4, W, 64)
Tensors = tuple[torch.Tensor, ...]

backends = pytest.mark.parametrize("backend", BACKENDS)


def run(kernel: Any, args: Tensors, backend: str, *blocks: int, **settings: Any) -> None:
    bound = on_backend(kernel, backend, **settings).bind(args)
    bound.compile_config(helion.Config(block_sizes=list(blocks)))(*args)


def numbers(*shape: int) -> torch.Tensor:
    count = torch.Size(shape).numel()
    return (torch.arange(count) * 7 % 31 - 9).view(shape)


def copied_in_tiles(buffer: torch.Tensor, source: slice, target: slice, block: int) -> None:
    """Tile after tile, each read whole before it is written."""
    for start in range(0, len(buffer[target]), block):
        old = buffer[source][start : start + block].clone()
        buffer[target][start : start + block] = old + 1


@backends
@pytest.mark.parametrize("shift", [1, 3, W])
@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("is_forward", [True, False])
def test_overlapping_arguments(shift: int, block: int, is_forward: bool, backend: str) -> None:
    early, late = slice(None, -shift), slice(shift, None)
    source, target = (early, late) if is_forward else (late, early)
    buffer, expected = numbers(70), numbers(70)
    copied_in_tiles(expected, source, target, block)
    run(kernels.copy_in_order, (buffer[source], buffer[target]), backend, block)
    assert torch.equal(buffer, expected)


@backends
@pytest.mark.parametrize("kernel", [kernels.update_in_turns, kernels.update_until])
@pytest.mark.parametrize("count", [0, 1, 3])
def test_what_was_loaded_before_a_loop_stays_when_the_loop_stores(
    kernel: Any, count: int, backend: str
) -> None:
    x = numbers(53)
    on_backend(kernel, backend).bind((x, count))(x, count)
    assert torch.equal(x, numbers(53) * 2 + count - 1 if count else numbers(53))


@backends
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("block", BLOCKS)
def test_shifts_within_one_tensor(length: int, block: int, backend: str) -> None:
    x = numbers(length)
    run(kernels.shift_left, (x,), backend, block)
    assert torch.equal(x, torch.cat([numbers(length)[1:], numbers(length)[-1:]]))
    x, expected = numbers(length), numbers(length)
    for start in range(0, length - 1, block):
        expected[start + 1 : start + block + 1] = (
            expected[start : start + block][: length - 1 - start].clone() * 2
        )
    run(kernels.shift_right, (x,), backend, block)
    assert torch.equal(x, expected)


@backends
@pytest.mark.parametrize("length", LENGTHS)
def test_mirrored_in_place(length: int, backend: str) -> None:
    x = numbers(length)
    run(kernels.reverse_in_place, (x,), backend, 64)
    assert torch.equal(x, numbers(length).flip(0))
    square = numbers(length, length)
    on_backend(kernels.transpose_in_place, backend)(square)
    assert torch.equal(square, numbers(length, length).t())


def expected_of_pairs(name: str, x: torch.Tensor, y: torch.Tensor) -> Tensors:
    """What the two tensors hold in the end."""
    half = len(x) // 2
    results: dict[str, Callable[[], Tensors]] = {
        "exchange": lambda: (y, x),
        "read_before_and_after": lambda: (x * 3 + 1, x + 30 * x + 100 * (x * 3 + 1)),
        "stored_elsewhere_in_the_tile": lambda: (x + 1, (x + 1).flip(0)),
        "kept_through_a_loop": lambda: (x * 8 + 4, x),
        "used_in_a_loop_that_overwrites": lambda: (x + 15, 3 * x),
        "masked_update": lambda: (torch.where(x % 2 == 0, x * 7, x),) * 2,
        "added_then_read": lambda: (
            x + torch.arange(len(x)),
            (x + torch.arange(len(x))) * 1000 + x,
        ),
        "loaded_where_allowed": lambda: (
            x,
            torch.cat([torch.zeros(2, dtype=x.dtype), x])[: len(x)],
        ),
        "exchange_by_halves": lambda: (
            torch.cat([x[half : 2 * half], x[:half], x[2 * half :]]),
            y,
        ),
    }
    return results[name]()


WHOLE_TILE_ONLY = {"stored_elsewhere_in_the_tile"}
PAIRS = (
    "exchange",
    "read_before_and_after",
    "stored_elsewhere_in_the_tile",
    "kept_through_a_loop",
    "used_in_a_loop_that_overwrites",
    "masked_update",
    "added_then_read",
    "loaded_where_allowed",
    "exchange_by_halves",
)


@backends
@pytest.mark.parametrize("dtype", [torch.int64, torch.float32], ids=str)
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", PAIRS)
def test_updates_are_seen_and_old_values_kept(
    name: str, length: int, dtype: torch.dtype, backend: str
) -> None:
    for block in (64,) if name in WHOLE_TILE_ONLY else (4, 64):
        x, y = numbers(length).to(dtype), (numbers(length) * 3 - 1).to(dtype)
        expected = expected_of_pairs(name, x.clone(), y.clone())
        args = (x,) if name == "exchange_by_halves" else (x, y)
        run(getattr(kernels, name), args, backend, block)
        for found, wanted in zip((x, y), expected, strict=True):
            assert torch.equal(found, wanted.to(dtype)), name


@backends
@pytest.mark.parametrize("static_shapes", [True, False])
@pytest.mark.parametrize("columns", [1, W - 1, W + 1, 53])
def test_rows_are_reduced_before_they_change(
    columns: int, static_shapes: bool, backend: str
) -> None:
    settings = {"static_shapes": static_shapes}
    for block in (1, 4):
        x, out = numbers(7, columns), torch.zeros(7, dtype=torch.int64)
        run(kernels.normalised_in_place, (x, out), backend, block, **settings)
        total = numbers(7, columns).sum(1)
        assert torch.equal(x, numbers(7, columns) - total[:, None])
        assert torch.equal(out, x.amax(1) + total)
        x = numbers(7, columns)
        run(kernels.updated_before_the_sum, (x, out), backend, block, **settings)
        assert torch.equal(out, total)
        assert not x.any()
        x = numbers(7, columns)
        run(kernels.running_sum_in_place, (x,), backend, block, **settings)
        assert torch.equal(x, numbers(7, columns).cumsum(1))


@backends
@pytest.mark.parametrize("length", LENGTHS)
def test_other_elements_are_read_before_they_change(length: int, backend: str) -> None:
    x, out = numbers(length, length), torch.zeros(length, length, dtype=torch.int64)
    on_backend(kernels.transposed_before_it_changes, backend)(x, out)
    assert torch.equal(out, numbers(length, length).t())
    assert torch.equal(x, numbers(length, length) + 100)


@backends
def test_places_named_twice_are_read_before_any_is_written(backend: str) -> None:
    at = torch.arange(70) % 5
    x, out = torch.arange(8), torch.zeros(70, dtype=torch.int64)
    run(kernels.gathered_update, (x, at, out), backend, 128)
    assert torch.equal(x, torch.arange(8) + (torch.arange(8) < 5))
    assert torch.equal(out, at + 1)


@backends
@pytest.mark.parametrize("size", [16, 17, 33])
def test_products_read_what_was_stored(size: int, backend: str) -> None:
    x, out = (numbers(size, size) % 5).float(), torch.zeros(size, size)
    expected = (x * 2) @ (x * 2)
    on_backend(kernels.product_of_what_was_stored, backend)(x, out)
    assert torch.equal(out, expected)
    assert not x.any()


@backends
@pytest.mark.parametrize("size", [(1, 31), (31, 1), (1, 1), (33, 20)])
def test_products_take_what_was_there_before_a_store(size: tuple[int, int], backend: str) -> None:
    x, y = torch.randn(size, dtype=torch.float64), torch.randn(size[1], 16, dtype=torch.float64)
    wanted, out = x @ y, torch.empty(size[0], 16, dtype=torch.float64)
    on_backend(kernels.product_of_what_was_there, backend)(x, y, out)
    torch.testing.assert_close(out, wanted)
    assert not x.any()
