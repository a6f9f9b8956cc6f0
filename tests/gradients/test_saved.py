"""What derived backwards load of the forward kernel, and what autograd keeps of a call."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch

import tilesmith as helion
import tilesmith.language as hl
from examples import attention, grpo_loss, layer_norm, matmul, rms_norm, rope, softmax, swiglu
from tests.gradients.compare import derive, present


@helion.kernel
def tanh(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = torch.tanh(x[tile].to(torch.float32)).to(x.dtype)
    return out


@helion.kernel
def exp_and_square(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    out, square = torch.empty_like(x), torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = torch.exp(x[tile])
        square[tile] = x[tile] * x[tile]
    return out, square


def floats(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


def arguments(kernel: Any, args: tuple[Any, ...]) -> set[str]:
    text = derive(kernel, args).source
    header = text[text.index("def ") : text.index(") ->")]
    return {part.split(":")[0].split("(")[-1].strip() for part in header.split(",")} - {""}


def code(kernel: Any, args: tuple[Any, ...]) -> str:
    """The text without the user's lines."""
    lines = derive(kernel, args).source.splitlines()
    return "\n".join(line for line in lines if not line.strip().startswith("#"))


def test_a_result_that_is_needed_must_not_be_changed() -> None:
    out = softmax.softmax(floats(3, 5))
    out.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_a_result_that_is_not_needed_may_be_changed() -> None:
    x, weight = floats(3, 5), floats(5)
    out, _ = rms_norm.rms_norm(x, weight, 1e-5)
    out.mul_(2.0)
    out.sum().backward()
    y, scale = (t.detach().clone().requires_grad_() for t in (x, weight))
    (2 * torch.nn.functional.rms_norm(y, (5,), scale, 1e-5)).sum().backward()
    assert torch.allclose(present(x.grad), present(y.grad))
    assert torch.allclose(present(weight.grad), present(scale.grad))


def test_an_argument_that_is_not_needed_may_be_changed() -> None:
    x = floats(3, 5)
    before = x * 1.0
    out = softmax.softmax(before)
    before.add_(7.0)
    out[:, 0].sum().backward()
    y = x.detach().clone().requires_grad_()
    torch.softmax(y, 1)[:, 0].sum().backward()
    assert torch.allclose(present(x.grad), present(y.grad))


def test_results_go_with_the_last_reference() -> None:
    x = floats(3, 5)
    gc.disable()
    try:
        out = softmax.softmax(x)
        seen = weakref.ref(out)
        out.sum().backward()
        del out
        assert seen() is None
    finally:
        gc.enable()


def test_another_shape_of_a_result_is_not_copied() -> None:
    gate, up = floats(3, 5), floats(3, 5)
    out = swiglu.swiglu(gate, up)
    assert "CopySlices" not in type(out.grad_fn).__name__
    assert torch.autograd.gradcheck(swiglu.swiglu, (gate, up))


@pytest.mark.parametrize("place", [0, 1])
def test_some_of_the_results_have_no_gradient(place: int) -> None:
    x = floats(3, 5)
    exp_and_square(x)[place].sum().backward()
    exact = (x.exp(), 2 * x)[place]
    assert torch.allclose(present(x.grad), exact)


def test_row_statistics_are_loaded() -> None:
    args = (torch.randn(5, 7), torch.randn(7), torch.randn(7), 1e-5)
    assert {"mean", "rstd"} <= arguments(layer_norm.layer_norm_fwd, args)
    assert "eps" not in arguments(layer_norm.layer_norm_fwd, args)


def test_rounded_results_are_factors_only() -> None:
    wide, narrow = torch.randn(5, 7), torch.randn(5, 7, dtype=torch.bfloat16)
    # 1 - out * out would cancel where out was rounded to one.
    assert arguments(tanh, (wide,)) == {"grad_out", "out"}
    assert arguments(tanh, (narrow,)) == {"grad_out", "x"}
    assert arguments(softmax.softmax, (narrow,)) == {"grad_out", "out"}


def test_a_stored_normaliser_makes_the_first_loop_superfluous() -> None:
    q = torch.randn(2, 9, 16)
    text = code(attention.attention_fwd, (q, q.clone(), q.clone()))
    assert "lse[" in text
    assert "amax" not in text
    assert "atomic" not in text
    assert text.count("hl.dot(") == 7


def test_what_a_loop_finds_is_handed_to_a_second_launch() -> None:
    q, k = torch.randn(2, 9, 16), torch.randn(2, 11, 16)
    text = code(attention.attention, (q, k, k.clone()))
    assert "atomic" not in text
    between = text.index("grad_q = torch.empty_like")
    assert text.index("normaliser_rows[tile_b, tile_m] = ") < between < text.index("grad_queries")


@pytest.mark.full
def test_two_launches_have_a_derivative_too() -> None:
    tensors = [torch.randn(2, n, 16) for n in (5, 7, 7)]

    def twice(call: Any, *args: torch.Tensor) -> Any:
        first = torch.autograd.grad((call(*args) ** 2).sum(), args, create_graph=True)
        total = torch.stack([(x**2).sum() for x in first]).sum()
        return torch.autograd.grad(total, args)

    wide = [t.double().requires_grad_() for t in tensors]
    exact = twice(torch.nn.functional.scaled_dot_product_attention, *wide)
    found = twice(attention.attention, *(t.requires_grad_() for t in tensors))
    for actual, wanted in zip(found, exact):
        assert (actual - wanted).norm() < 3e-6 * wanted.norm()


def test_the_loss_of_a_policy_walks_the_logits_once() -> None:
    logits = torch.randn(2, 4, 7)
    others = (torch.randint(7, (2, 3)), torch.randn(2), None, None, None)
    text = code(grpo_loss.grpo_loss_fwd, (logits, *others))
    assert text.count("for tile_v") == 1
    assert "amax" not in text


def test_factors_have_tiles_of_their_own_and_the_final_type() -> None:
    x = torch.randn(5, 6, dtype=torch.bfloat16)
    text = derive(matmul.matmul, (x, torch.randn(6, 7, dtype=torch.bfloat16))).source
    assert "register_block_size" not in text
    assert "empty_like(x)" in text


def test_parts_that_cover_a_gradient_need_no_zeros() -> None:
    q, k = torch.randn(2, 2, 3, 4), torch.randn(2, 2, 3, 4)
    angles = torch.randn(3, 4), torch.randn(3, 4)
    bound = rope.rope.bind((q, k, *angles))
    variant = bound.specialization.default
    wanted, given = frozenset({"q", "k"}), frozenset({"q_out", "k_out"})
    text = derive(rope.rope, (q, k, *angles)).compiled(variant, wanted, given).source.text
    assert "zeros" not in text
