"""Derived gradients next to the hand-written ones of the gallery: both within one budget of fp64.

At boundary sizes, with several configs, of strided inputs and with runtime sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch

import tilesmith as helion
from examples import attention, exp, geglu, layer_norm, matmul, rms_norm, softmax
from tests.gradients.compare import derive, leaves
from tilesmith.numerics.compare import check_against
from tilesmith.numerics.inputs import random_tensor

BLOCK = 16
SIZES = (1, BLOCK - 1, BLOCK, BLOCK + 1, 37)


@dataclass(frozen=True)
class Pair:
    """A forward kernel, its hand-written function, and the same in plain torch."""

    name: str
    kernel: Any
    function: Any
    reference: Callable[..., torch.Tensor]
    shapes: Callable[[int], tuple[tuple[int, ...], ...]]
    others: tuple[Any, ...] = ()
    sizes: tuple[int, ...] = SIZES

    def __str__(self) -> str:
        return self.name

    def args(self, size: int, dtype: torch.dtype) -> tuple[Any, ...]:
        shapes = enumerate(self.shapes(size))
        made = [random_tensor(shape, dtype, seed=seed) for seed, shape in shapes]
        return (*leaves(tuple(made)), *self.others)


def first(found: Any) -> torch.Tensor:
    return found[0] if isinstance(found, tuple) else found


def layer_norm_reference(x: Any, weight: Any, bias: Any, eps: float) -> torch.Tensor:
    return torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, eps)


PAIRS = (
    Pair("exp", exp.exp_fwd, exp.Exp.apply, torch.exp, lambda n: ((n, 5),)),
    Pair(
        "geglu",
        geglu.geglu,
        geglu.GeGLU.apply,
        lambda a, b: torch.nn.functional.gelu(a, approximate="tanh") * b,
        lambda n: ((n, 7), (n, 7)),
    ),
    Pair(
        "softmax",
        softmax.softmax,
        softmax.Softmax.apply,
        lambda x: torch.softmax(x, 1),
        lambda n: ((n, 33),),
    ),
    Pair(
        "layer_norm",
        layer_norm.layer_norm_fwd,
        layer_norm.LayerNorm.apply,
        layer_norm_reference,
        lambda n: ((n, 29), (29,), (29,)),
        (1e-5,),
    ),
    Pair(
        "rms_norm",
        rms_norm.rms_norm,
        rms_norm.RMSNorm.apply,
        lambda x, weight, eps: torch.nn.functional.rms_norm(x, x.shape[-1:], weight, eps),
        lambda n: ((n, 29), (29,)),
        (1e-5,),
    ),
    Pair(
        "matmul",
        matmul.matmul,
        matmul.MatMul.apply,
        torch.matmul,
        lambda n: ((n, 19), (19, 21)),
    ),
    Pair(
        "attention",
        attention.attention,
        attention.Attention.apply,
        torch.nn.functional.scaled_dot_product_attention,
        lambda n: ((2, n, 16), (2, n + 3, 16), (2, n + 3, 16)),
        sizes=(1, BLOCK + 1, 37),
    ),
)
CASES = [(pair, size) for pair in PAIRS for size in pair.sizes]


def gradients(call: Callable[..., Any], args: tuple[Any, ...], grad: torch.Tensor) -> list[Any]:
    out = first(call(*args))
    wanted = [arg for arg in args if isinstance(arg, torch.Tensor)]
    return list(torch.autograd.grad(out, wanted, grad.to(out.dtype)))


def exact(pair: Pair, args: tuple[Any, ...], grad: torch.Tensor) -> list[Any]:
    wide = tuple(a.detach().double() if isinstance(a, torch.Tensor) else a for a in args)
    return gradients(pair.reference, leaves(wide), grad.double())


def cotangent(call: Callable[..., Any], args: tuple[Any, ...]) -> torch.Tensor:
    out = first(call(*args))
    return random_tensor(tuple(out.shape), torch.float32, seed=99).to(out.dtype)


def check(found: list[Any], wanted: list[Any], dtype: torch.dtype) -> None:
    for actual, value in zip(found, wanted):
        # The longest sum behind an element of a gradient runs over rows and columns.
        check_against(actual, value, reduction_length=1200, intermediate=[dtype] * 2)


@pytest.mark.parametrize(("pair", "size"), CASES, ids=str)
def test_both_are_within_the_budget(pair: Pair, size: int) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        args = pair.args(size, dtype)
        backward = derive(pair.kernel, args)
        grad = cotangent(backward.call, args)
        wanted = exact(pair, args, grad)
        check(gradients(backward.call, args, grad), wanted, dtype)
        check(gradients(pair.function, args, grad), wanted, dtype)


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_any_config_gives_the_same_gradients(pair: Pair) -> None:
    args = pair.args(37, torch.float64)
    backward = derive(pair.kernel, args)
    grad = cotangent(backward.call, args)
    wanted = gradients(backward.call, args, grad)
    for size in (4, 16):
        for made in backward._made.values():
            for bound in made.kernel._bound_kernels.values():
                count = len(bound.config_spec.default_config().get("block_sizes", []))
                bound.set_config(helion.Config(block_sizes=[size] * count))
        for actual, value in zip(gradients(backward.call, args, grad), wanted):
            assert torch.allclose(actual, value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("pair", PAIRS[2:4], ids=str)
def test_strided_inputs(pair: Pair) -> None:
    args = pair.args(17, torch.float64)
    x = args[0].detach().t().contiguous().t().requires_grad_()
    assert not x.is_contiguous()
    args = (x, *args[1:])
    backward = derive(pair.kernel, args)
    grad = cotangent(backward.call, args).t().contiguous().t()
    for actual, value in zip(gradients(backward.call, args, grad), exact(pair, args, grad)):
        assert torch.allclose(actual.double(), value, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["softmax", "layer_norm", "matmul", "geglu"])
def test_one_backward_serves_all_sizes(name: str) -> None:
    (pair,) = [pair for pair in PAIRS if pair.name == name]
    kernel = helion.kernel(pair.kernel.fn, static_shapes=False)
    args = pair.args(17, torch.float64)
    backward = derive(kernel, args)
    for size in (17, 5, 40):
        args = pair.args(size, torch.float64)
        grad = cotangent(backward.call, args)
        for actual, value in zip(gradients(backward.call, args, grad), exact(pair, args, grad)):
            assert torch.allclose(actual.double(), value, rtol=1e-9, atol=1e-9)
    assert len(backward._made) == 1
