"""Gradients of tensors that programs load whole, and of what loops of two launches share."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from examples import se_block
from examples import squeeze_and_excitation_net as squeeze
from tests.gradients.compare import derive, relative_error


def gated_rows(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A product whose factor is loaded whole, a mean of its rows, and its values."""
    out, gate = x.new_empty(x.size(0)), x.new_empty(x.size(0), w.size(1))
    for tile in hl.tile(x.size(0)):
        scores = torch.tanh(hl.dot(x[tile, :], w[:, :]))
        gate[tile, :] = scores
        out[tile] = (scores * scores).mean(-1)
    return out, gate


def exact_rows(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scores = torch.tanh(x @ w)
    return (scores * scores).mean(-1), scores


def doubles(*shapes: tuple[int, ...]) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [(torch.randn(s, dtype=torch.float64) / 4).requires_grad_() for s in shapes]


def errors_of(call: Any, exact: Any, args: list[torch.Tensor]) -> list[float]:
    """Relative errors of gradients of all results."""
    wanted = [arg for arg in args if arg.requires_grad]
    results, right = call(*args), exact(*args)
    grads = [torch.randn_like(one) for one in right]
    found = torch.autograd.grad(results, wanted, grads)
    return [relative_error(*pair) for pair in zip(found, torch.autograd.grad(right, wanted, grads))]


SIZES = [(1, 16, 16), (127, 16, 48), (129, 17, 16), (64, 64, 64), (1031, 127, 129)]


@pytest.mark.parametrize("sizes", SIZES)
def test_a_factor_that_is_loaded_whole_has_a_grid_of_its_own(sizes: tuple[int, ...]) -> None:
    m, k, n = sizes
    args = doubles((m, k), (k, n))
    backward = derive(helion.kernel(gated_rows), tuple(args))
    assert max(errors_of(backward.call, exact_rows, args)) < 1e-13
    if m > 1000:
        assert "atomic" not in backward.source


def test_a_gate_that_was_stored_is_not_computed_again() -> None:
    args = tuple(torch.randn(s, dtype=torch.bfloat16) for s in ((2048, 64), (64, 64)))
    lines = derive(se_block.se_block_fwd, args).source.splitlines()
    code = [line for line in lines if not line.strip().startswith("#")]
    assert sum("hl.dot(" in line for line in code) == 2
    assert not any("atomic" in line for line in code)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("scale", [0.25, 4.0])
def test_errors_are_those_of_the_hand_written_ones(dtype: torch.dtype, scale: float) -> None:
    torch.manual_seed(0)
    cases = (
        (se_block.se_block_fwd, se_block.SEBlock, se_block.reference, [(200, 64), (64, 64)]),
        (
            squeeze.squeeze_excite_fwd,
            squeeze.SqueezeExcite,
            squeeze.reference,
            [(200, 64), (64, 16), (16, 64)],
        ),
    )
    for kernel, written, exact, shapes in cases:
        args = [(torch.randn(s) * scale / 2).to(dtype).requires_grad_() for s in shapes]
        wide = [arg.detach().double().requires_grad_() for arg in args]
        grad = torch.randn(shapes[0], dtype=dtype)
        right = torch.autograd.grad(exact(*wide)[0], wide, grad.double())
        derived = torch.autograd.grad(kernel(*args)[0], args, grad)
        by_hand = torch.autograd.grad(written.apply(*args), args, grad)
        for found, other, one in zip(derived, by_hand, right):
            assert relative_error(found, one) <= 1.1 * relative_error(other, one) + 1e-7


def test_what_a_loop_stores_is_not_stored_by_two_launches() -> None:
    # Without a gradient of b the first loop has no atomics, and was run by both launches.
    x, a, b = doubles((96, 80), (80, 16), (16, 80))
    b = b.detach()
    kernel = squeeze.squeeze_excite_fwd
    assert max(errors_of(kernel, squeeze.reference, [x, a, b])) < 1e-13


@pytest.mark.parametrize("sizes", [(1, 3, 2), (65, 64, 16), (127, 33, 17)])
def test_gradients_through_two_layers(sizes: tuple[int, ...]) -> None:
    m, n, hidden = sizes
    args = doubles((m, n), (n, hidden), (hidden, n))
    assert max(errors_of(squeeze.squeeze_excite_fwd, squeeze.reference, args)) < 1e-13


def test_second_derivatives_of_a_factor_that_is_loaded_whole() -> None:
    args = doubles((5, 4), (4, 4))
    call = helion.kernel(gated_rows)
    assert torch.autograd.gradcheck(call, args)
    assert torch.autograd.gradgradcheck(call, args)


def summed_in_a_grid(x: torch.Tensor) -> torch.Tensor:
    """An axis that is taken whole, in a loop over numbers, for each of which all is stored."""
    out = x.new_empty(x.size(0), x.size(0))
    for i in hl.grid(x.size(0)):
        total = hl.full([x.size(0)], 2, dtype=torch.float64)
        for tile in hl.tile(x.size(1)):
            total = total + x[:, tile].sum(1)
        out[i, :] = total
    return out


@pytest.mark.parametrize("rows", [1, 3])
def test_a_whole_axis_of_length_one_is_not_the_index_of_a_grid(rows: int) -> None:
    # It was written as the grid's index, and the backward kernel did not compile.
    (x,) = doubles((rows, 15))
    summed = helion.kernel(summed_in_a_grid)(x)
    torch.testing.assert_close(summed, x.sum(1).add(2).expand(rows, rows))
    (found,) = torch.autograd.grad(summed, x, torch.ones_like(summed))
    assert torch.equal(found, torch.full_like(x, rows))
