"""Small kernels as users write them, one feature next to another, against torch in fp64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.gradients.compare import derive, floats_in, gradients, leaves, relative_error


@helion.kernel
def broadcasts(x: torch.Tensor, row: torch.Tensor, col: torch.Tensor, s: torch.Tensor) -> Any:
    out = torch.empty_like(x)
    for tile_m, tile_n in hl.tile(x.size()):
        inner = torch.tanh(x[tile_m, tile_n] * row[tile_n][None, :] + col[tile_m, :])
        out[tile_m, tile_n] = inner * s[0] + col[tile_m, :] * x[tile_m, tile_n]
    return out


@helion.kernel
def host_views(x: torch.Tensor, y: torch.Tensor) -> Any:
    turned, every_other = x.t().contiguous(), y[..., ::2]
    out = torch.empty_like(turned)
    for tile_m, tile_n in hl.tile(turned.size()):
        product = turned[tile_m, tile_n] * every_other[tile_m, tile_n]
        out[tile_m, tile_n] = product + x[tile_n, tile_m].T
    return out * 2 + out.sum()


@helion.kernel
def two_results(x: torch.Tensor) -> Any:
    powers = torch.empty_like(x)
    norms = torch.empty([x.size(0)], dtype=x.dtype, device=x.device)
    for tile in hl.tile(x.size(0)):
        row = x[tile, :]
        powers[tile, :] = torch.exp(row)
        norms[tile] = torch.sqrt((row * row).sum(-1)) + torch.amax(row, -1)
    return powers, norms


@helion.kernel
def gathered(table: torch.Tensor, places: torch.Tensor, weights: torch.Tensor) -> Any:
    shape = [places.size(0), table.size(1)]
    out = torch.empty(shape, dtype=table.dtype, device=table.device)
    for tile in hl.tile(places.size(0)):
        out[tile, :] = table[places[tile], :] * weights[tile][:, None]
    return out


@helion.kernel
def recurrent(x: torch.Tensor, w: torch.Tensor, start: torch.Tensor) -> Any:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(1)):
        state = start[tile]
        for i in hl.grid(x.size(0)):
            state = torch.tanh(state * w[tile] + x[i, tile])
            out[i, tile] = state
    return out


@helion.kernel
def shifted(x: torch.Tensor, w: torch.Tensor) -> Any:
    n = x.size(0)
    out = torch.empty_like(x)
    for tile in hl.tile(n):
        i = tile.index
        left = hl.load(x, [i - 1], extra_mask=i > 0)
        right = hl.load(x, [i + 1], extra_mask=i < n - 1)
        out[tile] = left * w[0] + x[tile] * w[1] + right * w[2]
    return out


@helion.kernel
def chosen_by_rows(x: torch.Tensor, flags: torch.Tensor) -> Any:
    out = torch.empty_like(x)
    for i in hl.grid(x.size(0)):
        for tile in hl.tile(x.size(1)):
            value = x[i, tile]
            if flags[i] > 0:
                out[i, tile] = value * value
            else:
                out[i, tile] = torch.sin(value)
    return out


@helion.kernel
def largest(x: torch.Tensor) -> Any:
    out = torch.empty([x.size(0), 2], dtype=x.dtype, device=x.device)
    for tile in hl.tile(x.size(0)):
        values, _ = torch.topk(x[tile, :], 2, dim=-1)
        out[tile, :] = values * torch.exp(values)
    return out


def by_turns(x: torch.Tensor, w: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
    states = [start]
    for row in x:
        states.append(torch.tanh(states[-1] * w + row))
    return torch.stack(states[1:])


def padded(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    wide = torch.nn.functional.pad(x, (1, 1))
    return wide[:-2] * w[0] + x * w[1] + wide[2:] * w[2]


def viewed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = x.t() * y[..., ::2] + x.t()
    return out * 2 + out.sum()


def fp64(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64)


Make = Callable[[int, int], tuple[Any, ...]]
KERNELS: dict[str, tuple[Any, Callable[..., Any], Make]] = {
    "broadcasts": (
        broadcasts,
        lambda x, row, col, s: torch.tanh(x * row + col) * s[0] + col * x,
        lambda m, n: (fp64(m, n), fp64(n), fp64(m, 1), fp64(1)),
    ),
    "host_views": (host_views, viewed, lambda m, n: (fp64(m, n), fp64(n, 2 * m))),
    "two_results": (
        two_results,
        lambda x: (x.exp(), x.norm(dim=1) + x.amax(1)),
        lambda m, n: (fp64(m, n),),
    ),
    "gathered": (
        gathered,
        lambda table, places, weights: table[places] * weights[:, None],
        lambda m, n: (fp64(m + 2, n), torch.randint(m + 2, (n,)), fp64(n)),
    ),
    "recurrent": (recurrent, by_turns, lambda m, n: (fp64(m, n), fp64(n), fp64(n))),
    "shifted": (shifted, padded, lambda m, n: (fp64(m * n), fp64(3))),
    "chosen_by_rows": (
        chosen_by_rows,
        lambda x, flags: torch.where(flags[:, None] > 0, x * x, x.sin()),
        lambda m, n: (fp64(m, n), torch.randint(2, (m,))),
    ),
    "largest": (
        largest,
        lambda x: x.topk(2, -1)[0] * x.topk(2, -1)[0].exp(),
        lambda m, n: (fp64(m, n + 1),),
    ),
}
SIZES = ((5, 7), (1, 1), (33, 65))
QUICK = ("host_views", "gathered")


def compare(call: Any, name: str, args: tuple[Any, ...], *, only: int | None = None) -> None:
    reference = KERNELS[name][1]
    exact = floats_in(reference(*args))
    grads = [torch.randn_like(out) for out in exact]

    chosen = slice(None) if only is None else slice(only, only + 1)

    def picked(fn: Any) -> Any:
        return lambda *values: tuple(floats_in(fn(*values))[chosen])

    kept = grads[chosen]
    found, wanted = (gradients(picked(fn), args, kept) for fn in (call, reference))
    for actual, right in zip(found, wanted):
        assert relative_error(actual, right) < 1e-12


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.full) for n in KERNELS]
)
def test_gradients_of_mixed_kernels(name: str) -> None:
    torch.manual_seed(0)
    kernel, _, make = KERNELS[name]
    for size in SIZES if name not in QUICK else SIZES[:1]:
        compare(kernel, name, leaves(make(*size)))


@pytest.mark.full
@pytest.mark.parametrize("name", KERNELS)
def test_runtime_sizes(name: str) -> None:
    torch.manual_seed(0)
    kernel, _, make = KERNELS[name]
    kernel = helion.kernel(kernel.fn, static_shapes=False)
    for size in SIZES:
        compare(kernel, name, leaves(make(*size)))


@pytest.mark.full
@pytest.mark.parametrize("name", KERNELS)
def test_in_graphs(name: str) -> None:
    torch.manual_seed(0)
    torch.compiler.reset()
    kernel, _, make = KERNELS[name]
    compiled = torch.compile(kernel, backend="aot_eager", fullgraph=True)
    for size in ((5, 7), (6, 9)):
        compare(compiled, name, leaves(make(*size)))


@pytest.mark.parametrize("only", [0, 1])
def test_one_of_two_results_in_the_loss(only: int) -> None:
    compare(two_results, "two_results", leaves((fp64(5, 7),)), only=only)


@pytest.mark.full
def test_nothing_to_go_over() -> None:
    for size in ((0, 3), (3, 0)):
        compare(broadcasts, "broadcasts", leaves(KERNELS["broadcasts"][2](*size)))


@helion.kernel
def one_column(x: torch.Tensor, number: int) -> torch.Tensor:
    """Both branches hand on a tile along an axis of length one."""
    out = torch.empty([x.size(0)], dtype=x.dtype, device=x.device)
    for tile in hl.tile(x.size(0)):
        row = x[:, x.size(1) - 1]
        if number < 0:  # noqa: SIM108 -- a statement is what is tried
            row = row * row
        else:
            row = row.to(torch.float32).to(x.dtype)
        out[tile] = torch.sum(row, 0)
    return out


@pytest.mark.parametrize("number", [-1, 1])
@pytest.mark.parametrize("rows", [1, 5])
def test_branches_agree_on_axes_of_length_one(rows: int, number: int) -> None:
    x = torch.randint(-4, 5, (rows, 3)).double().requires_grad_()
    backward = derive(one_column, (x, number))
    (found,) = torch.autograd.grad(backward.call(x, number).sum(), (x,))
    wanted = torch.zeros(rows, 3, dtype=torch.float64)
    wanted[:, -1] = rows * (2 * x.detach()[:, -1] if number < 0 else 1)
    assert torch.equal(found, wanted)


@helion.kernel
def scaled_rows(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """What is scaled costs more to compute again than to divide out of the result."""
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        rows = torch.exp(torch.sin(x[tile, :]))
        for _ in hl.grid(3):
            rows = torch.exp(-rows)
        out[tile, :] = rows * scale[tile][:, None]
    return out


def test_rows_that_are_scaled_by_zero_have_gradients() -> None:
    x = torch.randn(5, 7)
    scale = torch.tensor([0.0, 1, -2, 0.0, 3], requires_grad=True)
    grad = torch.randn(5, 7)
    scaled_rows(x, scale).backward(grad)
    rows = torch.exp(torch.sin(x.double()))
    for _ in range(3):
        rows = torch.exp(-rows)
    assert scale.grad is not None
    assert relative_error(scale.grad, (rows * grad).sum(1)) < 1e-6
