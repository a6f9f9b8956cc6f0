"""Products that begin at zero in a loop: nobody writes the zeros, and nobody misses them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.conformance.case import randn
from tilesmith.numerics.compare import check_against

NOTE = "begins at zero"


def run(kernel: Any, *args: Any, blocks: list[int]) -> str:
    config = helion.Config(block_sizes=blocks)
    bound = kernel.bind(args)
    bound.compile_config(config)(*args)
    return bound.to_code(config)


@helion.kernel(backend="cpu", static_shapes=True)
def product(x, y, out):
    for tile_m, tile_n in hl.tile([x.size(0), y.size(1)]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, tile_n])
        out[tile_m, tile_n] = acc


@pytest.mark.parametrize(
    ("m", "n", "k"), [(70, 90, 100), (16, 32, 16), (17, 33, 15), (50, 70, 17), (100, 100, 1)]
)
@pytest.mark.parametrize("is_static", [True, False])
def test_programs_leave_nothing_to_the_next(m: int, n: int, k: int, is_static: bool) -> None:
    x, y, out = randn(m, k), randn(k, n), torch.full((m, n), torch.nan)
    kernel = helion.kernel(product.fn, backend="cpu", static_shapes=is_static)
    text = run(kernel, x, y, out, blocks=[16, 32, 16])
    check_against(out, x.double() @ y.double(), reduction_length=k)
    # Whether the loop runs at all must be known; sizes of 1 always are.
    assert (NOTE in text) == (is_static or k == 1)


@pytest.mark.parametrize("is_static", [True, False])
def test_a_loop_that_does_not_run_gives_zeros(is_static: bool) -> None:
    out = torch.full((20, 30), torch.nan)
    kernel = helion.kernel(product.fn, backend="cpu", static_shapes=is_static)
    run(kernel, randn(20, 0), randn(0, 30), out, blocks=[16, 32, 16])
    assert torch.equal(out, torch.zeros(20, 30))


@helion.kernel(backend="cpu", static_shapes=True)
def sum_of_squared_products(x, y, out):
    for tile_m in hl.tile(x.size(0)):
        total = hl.zeros([tile_m], dtype=torch.float32)
        for tile_n in hl.tile(y.size(1)):
            acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
            for tile_k in hl.tile(x.size(1)):
                acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, tile_n])
            total = total + (acc * acc).sum(-1)
        out[tile_m] = total


def test_every_iteration_of_an_outer_loop_begins_anew() -> None:
    x, y, out = randn(50, 70), randn(70, 90), torch.zeros(50)
    assert NOTE in run(sum_of_squared_products, x, y, out, blocks=[16, 32, 32])
    check_against(out, (x.double() @ y.double()).square().sum(-1), reduction_length=90 * 70)


@helion.kernel(backend="cpu", static_shapes=True)
def batched(x, y, out):
    for tile_b, tile_m in hl.tile([x.size(0), x.size(1)]):
        acc = hl.zeros([tile_b, tile_m, y.size(2)], dtype=torch.float32)
        for tile_k in hl.tile(x.size(2)):
            acc = torch.baddbmm(acc, x[tile_b, tile_m, tile_k], y[tile_b, tile_k, :])
        out[tile_b, tile_m, :] = acc


def test_batches() -> None:
    x, y, out = randn(6, 50, 40), randn(6, 40, 33), torch.zeros(6, 50, 33)
    assert NOTE in run(batched, x, y, out, blocks=[2, 16, 16])
    check_against(out, x.double() @ y.double(), reduction_length=40)


@helion.kernel(backend="cpu", static_shapes=True)
def over_two_axes(x, y, out):
    for tile_m in hl.tile(x.size(0)):
        acc = hl.zeros([tile_m, y.size(2)], dtype=torch.float32)
        for i, tile_k in hl.tile([x.size(1), x.size(2)], block_size=[1, None]):
            acc = torch.addmm(acc, x[tile_m, i.begin, tile_k], y[i.begin, tile_k, :])
        out[tile_m, :] = acc


def test_only_the_first_step_along_all_axes_begins() -> None:
    x, y, out = randn(50, 5, 40), randn(5, 40, 33), torch.zeros(50, 33)
    assert NOTE in run(over_two_axes, x, y, out, blocks=[16, 16])
    expected = torch.einsum("mik,ikn->mn", x.double(), y.double())
    check_against(out, expected, reduction_length=200)


@helion.kernel(backend="cpu", static_shapes=True)
def partial_sums(x, y, out, before):
    for tile_m in hl.tile(x.size(0)):
        acc = hl.zeros([tile_m, y.size(1)], dtype=torch.float32)
        for tile_k in hl.tile(x.size(1)):
            before[tile_m, tile_k.id, :] = acc
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, :])
        out[tile_m, :] = acc


def test_zeros_that_something_else_reads_are_written() -> None:
    x, y = randn(50, 40), randn(40, 33)
    out, before = torch.zeros(50, 33), torch.full((50, 3, 33), torch.nan)
    assert NOTE not in run(partial_sums, x, y, out, before, blocks=[16, 16])
    check_against(out, x.double() @ y.double(), reduction_length=40)
    steps = [x[:, :k].double() @ y[:k].double() for k in (0, 16, 32)]
    check_against(before, torch.stack(steps, 1), reduction_length=40)


@helion.kernel(backend="cpu", static_shapes=True)
def from_ones(x, y, out):
    for tile_m in hl.tile(x.size(0)):
        acc = hl.full([tile_m, y.size(1)], 1.0, dtype=torch.float32)
        for tile_k in hl.tile(x.size(1)):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, :])
        out[tile_m, :] = acc


def test_other_starts_are_written() -> None:
    x, y, out = randn(50, 40), randn(40, 33), torch.zeros(50, 33)
    assert NOTE not in run(from_ones, x, y, out, blocks=[16, 16])
    check_against(out, x.double() @ y.double() + 1, reduction_length=41)
