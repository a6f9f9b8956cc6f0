"""Gallery kernels that compute in fp64 throughout, against differences; and once more backwards."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from examples import (
    add,
    cross_entropy,
    embedding,
    exp,
    geglu,
    layer_norm,
    matmul,
    rms_norm,
    rope,
    softmax,
    swiglu,
    welford,
)
from examples import sum as row_sum
from tests.gradients.compare import derive, present
from tilesmith.gradients.tile_derivatives import SCALAR_DERIVATIVES
from tilesmith.numerics.inputs import random_tensor


def fp64(*shape: int, seed: int = 0) -> torch.Tensor:
    return random_tensor(shape, torch.float64, seed=seed).requires_grad_()


LABELS = torch.tensor([3, 0, 4])
KERNELS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "add": (add.add, (fp64(3, 5), fp64(5, seed=1))),
    "exp": (exp.exp_fwd, (fp64(3, 5),)),
    "exp_bwd": (exp.exp_bwd, (fp64(3, 5), fp64(3, 5, seed=1))),
    "geglu": (geglu.geglu, (fp64(3, 5), fp64(3, 5, seed=1))),
    "swiglu": (swiglu.swiglu, (fp64(3, 5), fp64(3, 5, seed=1))),
    "sum": (row_sum.sum_rows, (fp64(3, 5),)),
    "softmax": (softmax.softmax, (fp64(3, 5),)),
    "softmax_bwd": (softmax.softmax_bwd, (fp64(3, 5), fp64(3, 5, seed=1))),
    "layer_norm": (layer_norm.layer_norm_fwd, (fp64(3, 5), fp64(5, seed=1), fp64(5, seed=2), 1e-5)),
    "rms_norm": (rms_norm.rms_norm, (fp64(3, 5), fp64(5, seed=1), 1e-5)),
    "matmul": (matmul.matmul, (fp64(3, 5), fp64(5, 4, seed=1))),
    "matmul_bwd": (matmul.matmul_bwd, (fp64(3, 4), fp64(3, 5, seed=1), fp64(5, 4, seed=2))),
    "embedding": (embedding.embedding, (torch.tensor([1, 1, 0, 3]), fp64(4, 3))),
    "rope": (
        rope.rope,
        (fp64(1, 2, 3, 4), fp64(1, 1, 3, 4, seed=1), fp64(3, 4, seed=2), fp64(3, 4, seed=3)),
    ),
    "rope_bwd": (
        rope.rope_bwd,
        (fp64(1, 2, 3, 4), fp64(1, 1, 3, 4, seed=1), fp64(3, 4, seed=2), fp64(3, 4, seed=3)),
    ),
    "welford": (welford.welford, (fp64(3, 6), fp64(6, seed=1), fp64(6, seed=2))),
}


@pytest.mark.parametrize("name", KERNELS)
def test_the_gradient_is_that_of_differences(name: str) -> None:
    kernel, args = KERNELS[name]
    assert torch.autograd.gradcheck(derive(kernel, args).call, args)


TWICE = ["add", "exp", "geglu", "swiglu", "softmax", "sum"]
REFUSED_TWICE = ["welford"]
"""Its backward adds to what it has stored."""
OTHERS = [name for name in KERNELS if name not in (*TWICE, *REFUSED_TWICE)]


@pytest.mark.parametrize(
    "name", [*TWICE, *(pytest.param(name, marks=pytest.mark.full) for name in OTHERS)]
)
def test_backward_kernels_have_a_derived_backward_themselves(name: str) -> None:
    kernel, args = KERNELS[name]
    assert torch.autograd.gradgradcheck(derive(kernel, args).call, args)


def test_a_wrong_row_of_the_table_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCALAR_DERIVATIVES, "exp", lambda g, y, x: (g * y * 1.1,))
    kernel, args = KERNELS["exp"]
    with pytest.raises(RuntimeError, match="Jacobian mismatch"):
        torch.autograd.gradcheck(derive(kernel, args).call, args)


def test_gradients_are_found_without_autograd_around() -> None:
    logits = fp64(3, 5)
    backward = derive(cross_entropy.cross_entropy, (logits, LABELS))
    (grad, none) = backward.run((logits, LABELS), (torch.ones((), dtype=torch.float32),))
    (exact,) = torch.autograd.grad(torch.nn.functional.cross_entropy(logits, LABELS), logits)
    assert none is None
    assert torch.allclose(present(grad), exact, rtol=1e-5)


def test_only_wanted_gradients_are_computed() -> None:
    x, weight = fp64(3, 5).detach(), fp64(5, seed=1)
    backward = derive(rms_norm.rms_norm, (x, weight, 1e-5))
    out = backward.call(x, weight, 1e-5)
    out = out[0] if isinstance(out, tuple) else out
    out.sum().backward()
    assert weight.grad is not None
    (made,) = backward._made.values()
    assert made.source.gradients == ("weight",)
