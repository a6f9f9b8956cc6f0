"""Gradients of kernels: equal to those of the same computation under torch's autograd."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as nnf

import tilesmith
import tilesmith.language as hl
from tilesmith.exc import AutodiffNotSupported
from tilesmith.experimental import backward


def check(kernel, reference, *args, rtol=1e-4, atol=1e-4):
    """Compare gradients of all tensors, for random gradients of all results."""
    before = [arg.clone() if isinstance(arg, torch.Tensor) else arg for arg in args]
    leaves = [
        arg.detach().clone().requires_grad_() if isinstance(arg, torch.Tensor) else arg
        for arg in args
    ]
    results = reference(*leaves)
    results = results if isinstance(results, tuple) else (results,)
    grads = tuple(torch.randn_like(result) for result in results)
    torch.autograd.backward(results, grads)
    expected = [leaf.grad for leaf in leaves if isinstance(leaf, torch.Tensor)]
    found, source, triton = backward(kernel, grads, *args, return_code=True)
    found = found if isinstance(found, tuple) else (found,)
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected):
        torch.testing.assert_close(mine, theirs, rtol=rtol, atol=atol)
    for arg, old in zip(args, before):
        assert not isinstance(arg, torch.Tensor) or torch.equal(arg, old)
    assert "def backward_kernel" in source
    assert "@triton.jit" in triton
    return source


FUNCTIONS = {
    "arithmetic": lambda a, b: -a * b + a / (b * b + 1) - (a - b),
    "exponentials": lambda a, b: torch.exp(a) + torch.exp2(b) * torch.expm1(a),
    "logarithms": lambda a, b: torch.log(a * a + 1) + torch.log2(b.abs() + 1) + torch.log1p(a * a),
    "roots": lambda a, b: torch.sqrt(a * a + 1) * torch.rsqrt(b * b + 2),
    "circular": lambda a, b: torch.sin(a) * torch.cos(b) + torch.tan(a * 0.3) + torch.atan(b),
    "inverse": lambda a, b: torch.asin(torch.tanh(a)) + torch.acos(torch.tanh(b)),
    "hyperbolic": lambda a, b: torch.tanh(a) + torch.sinh(b) * torch.cosh(a) + torch.asinh(b),
    "inverse hyperbolic": lambda a, b: torch.acosh(a * a + 1.5) + torch.atanh(torch.tanh(b) * 0.5),
    "error function": lambda a, b: torch.erf(a) + torch.erfc(b) * torch.sigmoid(a),
    "choices": lambda a, b: torch.where(a > b, a * 2, b * 3) + torch.relu(a) + torch.abs(b),
    "maxima": lambda a, b: torch.maximum(a, b) * 2 + torch.minimum(a, b * 2),
    "ties": lambda a, b: torch.maximum(a, a * 1) * b + torch.minimum(b, b + 0) * a,
    "powers": lambda a, b: torch.pow(a.abs() + 0.5, b) + a**3,
    "angles": lambda a, b: torch.atan2(a, b + 3),
    "remainders": lambda a, b: torch.fmod(a, b.abs() + 0.7) + torch.remainder(a, b.abs() + 0.6),
    "steps": lambda a, b: torch.floor(a) * b + torch.round(b) * a,
    "soft": lambda a, b: (
        nnf.softplus(a) + nnf.gelu(b) + nnf.silu(a) + nnf.gelu(a, approximate="tanh")
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_scalar_functions(name):
    torch.manual_seed(0)
    fn = FUNCTIONS[name]
    check(of_elements, lambda x, y, _: fn(x, y), torch.randn(7, 33), torch.randn(7, 33), fn)


@tilesmith.kernel
def of_elements(x: torch.Tensor, y: torch.Tensor, fn) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = fn(x[tile], y[tile])
    return out


def test_operands_that_broadcast_get_sums():
    check(of_products, lambda x, y: x * y, torch.randn(5, 1, 3), torch.randn(4, 1))


@tilesmith.kernel
def of_products(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x, y = torch.broadcast_tensors(x, y)
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = x[tile] * y[tile]
    return out


@tilesmith.kernel
def matmul(x: torch.Tensor, y: torch.Tensor, bias: torch.Tensor, scale: float) -> torch.Tensor:
    m, k = x.size()
    _, n = y.size()
    out = torch.empty([m, n], dtype=x.dtype)
    for tile_m, tile_n in hl.tile([m, n]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(k):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, tile_n])
        out[tile_m, tile_n] = (torch.tanh(acc * scale) + bias[tile_n]).to(x.dtype)
    return out


def test_a_loop_that_adds_up_needs_no_order():
    source = check(
        matmul,
        lambda x, y, b, s: torch.tanh(x @ y * s) + b,
        *(torch.randn(33, 20), torch.randn(20, 17), torch.randn(17), 0.5),
    )
    assert "reversed" not in source


def test_half_floats_add_up_in_single_precision():
    x, y, b = torch.randn(64, 300).half(), torch.randn(300, 8).half(), torch.randn(8).half()
    grad = torch.randn(64, 8).half()
    found = backward(matmul, grad, x, y, b, 0.01)
    exact = [t.double().requires_grad_() for t in (x, y, b)]
    (torch.tanh(exact[0] @ exact[1] * 0.01) + exact[2]).backward(grad.double())
    for mine, leaf in zip(found, exact):
        assert mine.dtype == torch.float16
        torch.testing.assert_close(mine.double(), leaf.grad, rtol=2e-3, atol=2e-3)


@tilesmith.kernel
def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    m, d = q.size()
    out = torch.empty_like(q)
    for tile_m in hl.tile(m):
        most = hl.full([tile_m], float("-inf"), dtype=torch.float32)
        total = hl.zeros([tile_m], dtype=torch.float32)
        acc = hl.zeros([tile_m, d], dtype=torch.float32)
        rows = q[tile_m, :]
        for tile_n in hl.tile(k.size(0)):
            scores = hl.dot(rows, k[tile_n, :].T)
            new = torch.maximum(most, torch.amax(scores, -1))
            weights = torch.exp(scores - new[:, None])
            decay = torch.exp(most - new)
            total = total * decay + weights.sum(-1)
            acc = acc * decay[:, None] + hl.dot(weights, v[tile_n, :])
            most = new
        out[tile_m, :] = acc / total[:, None]
    return out


def test_a_loop_that_carries_more_than_sums_runs_down():
    source = check(
        attention,
        lambda q, k, v: torch.softmax(q @ k.T, -1) @ v,
        *(torch.randn(19, 16), torch.randn(40, 16), torch.randn(40, 16)),
    )
    assert "reversed(hl.tile(40))" in source


@tilesmith.kernel
def normalised(
    x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-5
) -> tuple[torch.Tensor, torch.Tensor]:
    out = torch.empty_like(x)
    inverse = x.new_empty(x.size(0))
    for tile in hl.tile(x.size(0)):
        rows = x[tile, :]
        root = torch.rsqrt(torch.mean(rows * rows, dim=-1) + eps)
        out[tile, :] = rows * root[:, None] * weight[:]
        inverse[tile] = root
    return out, inverse.reshape(-1, 1)


def normalised_by_torch(x, weight):
    root = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)
    return x * root * weight, root


def test_several_results_and_host_views():
    check(normalised, normalised_by_torch, torch.randn(13, 20), torch.randn(20))


def test_results_without_a_gradient_count_as_constant():
    x, weight = torch.randn(13, 20), torch.randn(20)
    grad = torch.randn(13, 20)
    leaves = [x.clone().requires_grad_(), weight.clone().requires_grad_()]
    normalised_by_torch(*leaves)[0].backward(grad)
    for given in (grad, (grad,), (grad, None)):
        for mine, leaf in zip(backward(normalised, given, x, weight), leaves):
            torch.testing.assert_close(mine, leaf.grad)


@tilesmith.kernel
def through_memory(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    kept = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        kept[tile] = x[tile] * x[tile]
        out[tile] = torch.sin(kept[tile]) + kept[tile]
    return out


@tilesmith.kernel
def in_place(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        first = x[tile]
        x[tile] = first * 2
        out[tile] = torch.sin(x[tile]) * first
    return out


@tilesmith.kernel
def written_twice(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = x[tile] * 5
        out[tile] = torch.exp(x[tile])
    return out


def test_values_that_pass_through_memory():
    x = torch.randn(70)
    check(through_memory, lambda x: torch.sin(x * x) + x * x, x)
    check(in_place, lambda x: torch.sin(x * 2) * x, x)
    check(written_twice, torch.exp, x)


@tilesmith.kernel
def lookup(table: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    out = table.new_empty(index.size(0), table.size(1))
    for tile in hl.tile(index.size(0)):
        out[tile, :] = table[index[tile], :] * 2
    return out


def test_rows_that_are_read_several_times_get_all_their_gradients():
    table, index = torch.randn(5, 6), torch.tensor([4, 1, 4, 4, 0, 1, 3])
    grad = torch.randn(7, 6)
    expected = torch.zeros(5, 6).index_add(0, index, grad * 2)
    torch.testing.assert_close(backward(lookup, grad, table, index), expected)


@tilesmith.kernel
def two_stages(x: torch.Tensor) -> torch.Tensor:
    part = x.new_empty(x.size(0))
    for tile in hl.tile(x.size(0)):
        part[tile] = x[tile, :].amax(-1)
    total = part.sum()
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile, :] = x[tile, :] / total[()] + torch.cumsum(x[tile, :], -1)
    return out


def test_host_code_between_launches():
    check(
        two_stages,
        lambda x: x / x.amax(-1).sum() + torch.cumsum(x, -1),
        torch.rand(9, 11) + 0.5,
    )


@tilesmith.kernel
def pairs(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        left, right = hl.split(x[tile, :, :])
        out[tile, :, :] = hl.join(left * right, torch.sin(left))
    return out


def test_halves_are_joined_again():
    check(
        pairs,
        lambda x: torch.stack([x[..., 0] * x[..., 1], torch.sin(x[..., 0])], -1),
        torch.randn(5, 8, 2),
    )


@tilesmith.kernel
def unused(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = x[tile] * math.pi
    return out


def test_arguments_without_influence_get_zeros():
    x, y = torch.randn(8), torch.randn(3)
    first, second = backward(unused, torch.ones(8), x, y)
    torch.testing.assert_close(first, torch.full([8], math.pi))
    assert torch.equal(second, torch.zeros(3))


@tilesmith.kernel
def with_a_branch(x: torch.Tensor, n: int) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        value = x[tile]
        if tile.begin < n:
            value = value * 2
        out[tile] = value
    return out


@tilesmith.kernel
def greatest(x: torch.Tensor) -> torch.Tensor:
    out = x.new_zeros(1)
    for tile in hl.tile(x.size(0)):
        hl.atomic_max(out, [0], x[tile].amax())
    return out


@pytest.mark.parametrize(
    ("kernel", "args", "reason"),
    [(with_a_branch, (3,), "branch"), (greatest, (), "hl.atomic_max")],
)
def test_what_has_no_gradient_is_refused(kernel, args, reason):
    with pytest.raises(AutodiffNotSupported, match=reason):
        backward(kernel, torch.ones(8 if args else 1), torch.randn(8), *args)


def test_more_gradients_than_results():
    with pytest.raises(AutodiffNotSupported, match="1 tensors, and 2 gradients"):
        backward(of_products, (torch.ones(3), torch.ones(3)), torch.ones(3), torch.ones(3))
