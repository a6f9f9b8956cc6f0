"""Grids of backwards: swapped loops, blocks that results show, one gradient in two shapes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from examples import attention, causal_attention, cross_entropy
from tests.gradients.compare import derive, present, relative_error


def triangle(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Sums of products with the rows up to one's own."""
    m, d = x.size()
    d = hl.specialize(d)
    out = torch.empty_like(x)
    for tile_m in hl.tile(m):
        acc = hl.zeros([tile_m, d], dtype=x.dtype)
        for tile_n in hl.tile(0, tile_m.end):
            products = torch.tanh(hl.dot(x[tile_m, :], y[tile_n, :].T))
            seen = tile_m.index[:, None] >= tile_n.index[None, :]
            acc = hl.dot(torch.where(seen, products, 0.0), y[tile_n, :], acc=acc)
        out[tile_m, :] = acc
    return out


def exact_triangle(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x @ y.T).tril() @ y


@pytest.mark.parametrize("static", [True, pytest.param(False, marks=pytest.mark.full)])
def test_a_loop_up_to_the_diagonal_is_swapped(static: bool) -> None:
    torch.manual_seed(0)
    kernel = helion.kernel(triangle, static_shapes=static)
    for size in ((1, 16), (33, 16), (70, 16)):
        x, y = ((torch.randn(size, dtype=torch.float64) / 4).requires_grad_() for _ in range(2))
        backward = derive(kernel, (x, y))
        assert size[0] == 1 or "atomic" not in backward.source
        grad = torch.randn(size, dtype=torch.float64)
        found = torch.autograd.grad(backward.call(x, y), (x, y), grad)
        wanted = torch.autograd.grad(exact_triangle(x, y), (x, y), grad)
        for actual, right in zip(found, wanted):
            assert relative_error(actual, right) < 1e-13


def test_a_tile_of_fixed_width_stays_where_it_is() -> None:
    @helion.kernel
    def blocks(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out = torch.zeros_like(x)
        for tile_m in hl.tile(x.size(0), block_size=16):
            acc = hl.zeros([tile_m, 16], dtype=x.dtype)
            for tile_n in hl.tile(0, tile_m.end):
                acc = hl.dot(
                    torch.tanh(hl.dot(x[tile_m, :], y[tile_n, :].T)), y[tile_n, :], acc=acc
                )
            out[tile_m, :] = acc
        return out

    torch.manual_seed(0)
    x, y = ((torch.randn(40, 16, dtype=torch.float64) / 4).requires_grad_() for _ in range(2))
    ends = (torch.arange(40) // 16 + 1) * 16
    seen = torch.arange(40)[None, :] < ends[:, None]
    exact = torch.where(seen, torch.tanh(x @ y.T), 0.0) @ y
    grad = torch.randn(40, 16, dtype=torch.float64)
    found = torch.autograd.grad(derive(blocks, (x, y)).call(x, y), (x, y), grad)
    for actual, right in zip(found, torch.autograd.grad(exact, (x, y), grad)):
        assert relative_error(actual, right) < 1e-13


@pytest.mark.parametrize("kernel", [attention.causal_attention, causal_attention.causal_fwd])
def test_causal_attention_adds_nothing_atomically(kernel: Any) -> None:
    args = tuple(torch.randn(2, 33, 16) for _ in range(3))
    assert "atomic" not in derive(kernel, args).source


def parts(x: torch.Tensor) -> torch.Tensor:
    block = hl.register_block_size(x.size(0))
    out = torch.empty([helion.cdiv(x.size(0), block), x.size(1)], dtype=x.dtype, device=x.device)
    for tile in hl.tile(x.size(0), block_size=block):
        out[tile.id, :] = (x[tile, :] * x[tile, :]).sum(0)
    return out


@pytest.mark.parametrize("block", [1, 4, 16])
def test_blocks_that_results_show_stay_what_they_were(block: int) -> None:
    kernel = helion.kernel(parts, config=helion.Config(block_sizes=[block]))
    x = torch.randn(13, 5, dtype=torch.float64, requires_grad=True)
    out = derive(kernel, (x,)).call(x)
    exact = torch.stack([(rows * rows).sum(0) for rows in x.split(block)])
    grad = torch.randn_like(out)
    (found,) = torch.autograd.grad(out, x, grad)
    (wanted,) = torch.autograd.grad(exact, x, grad)
    assert relative_error(found, wanted) < 1e-13


def test_blocks_of_unknown_width_are_refused() -> None:
    kernel = helion.kernel(parts, static_shapes=False)
    x = torch.randn(13, 5, requires_grad=True)
    out = kernel(x)
    with pytest.raises(helion.exc.AutodiffNotSupported, match="how wide a tile is shows") as error:
        out.sum().backward()
    assert "out[tile.id, :]" in str(error.value)


def stretched(x: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    out = torch.empty([rows, columns], dtype=x.dtype, device=x.device)
    for t, u in hl.tile([rows, columns]):
        down, across = t.index * x.size(0) // rows, u.index * x.size(1) // columns
        out[t, u] = x[down, across] * x[down, across]
    return out


@pytest.mark.parametrize("is_static", [True, False])
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (1, 7), (5, 1), (11, 13)])
def test_axes_that_a_number_makes_may_have_one_element(
    rows: int, columns: int, is_static: bool
) -> None:
    """Of one element, an axis was taken for one along which all tiles store at one place."""
    kernel = helion.kernel(stretched, static_shapes=is_static)
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    out = kernel(x, rows, columns)
    places = torch.arange(rows)[:, None] * 3 // rows, torch.arange(columns) * 4 // columns
    exact = x[places] * x[places]
    grad = torch.randn_like(exact)
    (found,) = torch.autograd.grad(out, x, grad)
    (wanted,) = torch.autograd.grad(exact, x, grad)
    assert relative_error(found, wanted) < 1e-13


def test_a_tensor_in_two_shapes_has_one_gradient() -> None:
    logits, labels = torch.randn(5, 7, requires_grad=True), torch.tensor([0, 6, 6, 2, 3])
    backward = derive(cross_entropy.cross_entropy, (logits, labels))
    assert "grad_flat = grad_logits.view(-1)" in backward.source
    assert backward.source.count("torch.empty(") + backward.source.count("torch.zeros(") == 1
    backward.call(logits, labels).backward()
    wide = logits.detach().double().requires_grad_()
    torch.nn.functional.cross_entropy(wide, labels).backward()
    assert relative_error(present(logits.grad), present(wide.grad)) < 1e-6


def test_a_view_with_other_strides_has_it_too() -> None:
    base = torch.randn(7, 5, requires_grad=True)
    labels = torch.tensor([0, 6, 6, 2, 3])
    cross_entropy.cross_entropy(base.t(), labels).backward()
    wide = base.detach().double().requires_grad_()
    torch.nn.functional.cross_entropy(wide.t(), labels).backward()
    assert relative_error(present(base.grad), present(wide.grad)) < 1e-6


@pytest.mark.parametrize(("first", "rows"), [(2, 33), (17, 33), (16, 33), (33, 33), (2, 2)])
def test_parts_of_tiles_that_start_later_are_all_filled(first: int, rows: int) -> None:
    @helion.kernel
    def later(
        x: torch.Tensor, y: torch.Tensor, like: torch.Tensor, first: hl.constexpr
    ) -> torch.Tensor:
        out = torch.zeros([like.size(0), x.size(0), y.size(1)], dtype=x.dtype)
        for tile_r, tile_m in hl.tile([first, 0], [like.size(0), x.size(0)], block_size=[16, 16]):
            product = hl.dot(x[tile_m, :], y[:, :])
            out[tile_r, tile_m, :] = product[None, :, :] + like[tile_r][:, None, None]
        return out

    torch.manual_seed(0)
    x, y, like = (torch.randn(size, dtype=torch.float64) for size in ((16, 8), (8, 16), (rows,)))
    wanted = [x.requires_grad_(), y.requires_grad_()]
    grad = torch.randn(rows, 16, 16, dtype=torch.float64)
    summed = grad[first:].sum(0)
    # Memory that is not filled holds NaN then.
    torch.use_deterministic_algorithms(mode=True)
    try:
        backward = derive(later, (x, y, like, first))
        found = torch.autograd.grad(backward.call(x, y, like, first), wanted, grad)
    finally:
        torch.use_deterministic_algorithms(mode=False)
    for actual, right in zip(found, (summed @ y.T, x.T @ summed)):
        assert relative_error(actual, right) < 1e-13 or (not right.any() and not actual.any())
