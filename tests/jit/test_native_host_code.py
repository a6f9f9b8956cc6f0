"""Host code that was worked out once makes, views and returns what Python would."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tilesmith
import tilesmith.language as hl

NUM_CALLS = 4
"""The first is traced, the second recognised, later ones run what was found for it."""

pytestmark = pytest.mark.usefixtures("needs_reader")


def swapped(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x, y = y, x
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = x[tile] - 2 * y[tile]
    return out


def swapped_by_broadcasting(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x, y = torch.broadcast_tensors(y, x)
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = x[tile] - 2 * y[tile]
    return out


def replaced(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x, other = torch.zeros_like(y), x
    for tile in hl.tile(x.size()):
        x[tile] = x[tile] + y[tile] - 2 * other[tile]
    return x


@pytest.mark.parametrize("function", [swapped, swapped_by_broadcasting, replaced])
def test_names_of_one_assignment_are_bound_at_once(function: Callable[..., Any]):
    kernel = tilesmith.kernel(function)
    x, y = torch.randn(2, 3, 4).unbind()
    for _ in range(NUM_CALLS):
        torch.testing.assert_close(kernel(x, y), y - 2 * x)
    assert type(kernel.bind((x, y)).call).__name__ == "FixedCall"


@tilesmith.kernel
def renamed_view(x: torch.Tensor) -> tuple[torch.Tensor, int]:
    out = torch.empty_like(x)
    flat = x.view(-1)
    x = flat
    for tile in hl.tile(out.size()):
        out[tile] = 1.0
    return out, x.size(0)


def test_a_view_that_has_another_name_is_a_view():
    x = torch.zeros(3, 4)
    for _ in range(NUM_CALLS):
        out, size = renamed_view(x)
        assert torch.equal(out, x + 1)
        assert size == 12


@tilesmith.kernel
def ones_as_integers(x: torch.Tensor) -> torch.Tensor:
    out = torch.ones_like(x)
    for tile in hl.tile(1):
        out[tile, 0] = x[tile, 0]
    return out.view(torch.int32)


def test_ones_are_those_of_the_type_in_which_they_were_made():
    x = torch.full((2, 3), 5.0)
    expected = torch.ones_like(x)
    expected[0, 0] = 5.0
    for _ in range(NUM_CALLS):
        assert torch.equal(ones_as_integers(x), expected.view(torch.int32))


@tilesmith.kernel
def of_a_type(x: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    out = torch.empty([x.size(0)], dtype=dtype)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile]
    return out


def test_the_default_type_may_change():
    x = torch.randn(5)
    try:
        for dtype in (torch.float32, torch.float64, torch.float32):
            torch.set_default_dtype(dtype)
            for _ in range(NUM_CALLS):
                assert of_a_type(x).dtype is dtype
                assert of_a_type(x, torch.bfloat16).dtype is torch.bfloat16
    finally:
        torch.set_default_dtype(torch.float32)


@tilesmith.kernel
def zeros_and_more(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = x[tile] + 1
    return out


@pytest.mark.parametrize(
    ("sizes", "strides"), [((1, 5), (13, 1)), ((5, 1), (1, 7)), ((1, 1), (2, 7))]
)
def test_axes_of_length_one_have_the_strides_that_torch_gives(
    sizes: tuple[int, int], strides: tuple[int, int]
):
    x = torch.arange(20.0).as_strided(sizes, strides)
    for _ in range(NUM_CALLS):
        found = zeros_and_more(x)
        assert found.stride() == torch.zeros_like(x).stride()
        assert torch.equal(found, x + 1)


@tilesmith.kernel(static_shapes=False)
def turned(x: torch.Tensor, count: int) -> torch.Tensor:
    hl.specialize(x.size(1))
    twice = count * 2
    lines = x.transpose(0, 1)
    out = torch.empty([lines.size(0), lines.size(1)], dtype=x.dtype)
    for tile in hl.tile([lines.size(0), lines.size(1)]):
        out[tile] = lines[tile] + twice
    return out


def test_sizes_of_views_are_not_those_of_what_they_show():
    for sizes in ((3, 4), (5, 4), (2, 6), (7, 6)):
        x = torch.randn(sizes)
        for count in (1, 1, 1, 2):
            assert torch.equal(turned(x, count), x.t() + 2 * count)


@tilesmith.kernel
def one_or_the_other(x: torch.Tensor, by: int, more: int, is_product: bool) -> torch.Tensor:
    if is_product:
        factor = hl.specialize(by)
        offset = 0
    else:
        factor = 1
        offset = hl.specialize(more)
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] * factor + offset
    return out


def test_numbers_that_only_some_branches_make_constants():
    x = torch.arange(3.0)
    for is_product in (True, False):
        for number in (2, 3, 4, 2):
            for _ in range(NUM_CALLS):
                found = one_or_the_other(x, number if is_product else 2, number, is_product)
                assert torch.equal(found, x * number if is_product else x + number)


@tilesmith.kernel(static_shapes=False)
def with_bias(x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    count = 1
    if bias is not None:
        count = hl.specialize(bias.size(0))
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] + count
    return out


def test_what_is_a_constant_of_a_tensor_may_be_left_out():
    x = torch.arange(3.0)
    for _ in range(NUM_CALLS):
        for bias in (torch.zeros(2), None, torch.zeros(5)):
            assert torch.equal(with_bias(x, bias), x + (1 if bias is None else bias.size(0)))


@tilesmith.kernel(ignore_warnings=[tilesmith.exc.TensorOperationInWrapper])
def asks_later(x: torch.Tensor) -> tuple[torch.Tensor, int]:
    block = hl.register_block_size(x.size(0))
    sums = torch.empty([tilesmith.cdiv(x.size(0), block)], dtype=x.dtype)
    for tile in hl.tile(x.size(0), block_size=block):
        sums[tile.id] = x[tile].sum()
    return sums.sum(), hl.specialize(x.size(0))


def test_code_after_the_loops_may_ask_the_language():
    x = torch.arange(7.0)
    for _ in range(NUM_CALLS):
        total, count = asks_later(x)
        assert total == 21
        assert count == 7
