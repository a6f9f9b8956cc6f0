"""Attention and its variants, as data."""

from __future__ import annotations

from typing import Any

import torch

from examples import (
    attention,
    attention_backward,
    blackwell_attention,
    causal_attention,
    flex_attention,
    fp8_attention,
    xsa,
)
from tests.examples.case import Args, Case, Size, blocks, keys, tensors
from tilesmith.numerics.inputs import random_tensor

HEADS: tuple[Size, ...] = ((1, 2, 3, 16), (2, 17, 33, 24))
SQUARES: tuple[Size, ...] = ((1, 3, 3, 16), (2, 37, 37, 24))


def flat_heads(size: Size, dtype: torch.dtype, device: str) -> Args:
    b, m, n, d = size
    return tensors((b, m, d), (b, n, d), (b, n, d), dtype=dtype, device=device)


def heads_with_bias(size: Size, dtype: torch.dtype, device: str) -> Args:
    b, m, n, d = size
    shapes = ((b, 2, m, d), (b, 2, n, d), (b, 2, n, d), (b, 2, m, n))
    return tensors(*shapes, dtype=dtype, device=device)


def gradient_inputs(size: Size, dtype: torch.dtype, device: str) -> Args:
    q, k, v = flat_heads(size, dtype, device)
    out, lse = attention.reference_fwd(q, k, v)
    grad_out = random_tensor(q.shape, dtype, seed=9, device=device)
    return grad_out, q, k, v, out.to(dtype), lse.float()


def causal_gradient_inputs(size: Size, dtype: torch.dtype, device: str) -> Args:
    q, k, v = flat_heads(size, dtype, device)
    out, lse = causal_attention.reference_fwd(q, k, v)
    grad_out = random_tensor(q.shape, dtype, seed=9, device=device)
    return grad_out, q, k, v, out.to(dtype), lse.float()


def query_inputs(size: Size, dtype: torch.dtype, device: str) -> Args:
    grad_out, q, k, v, out, lse = gradient_inputs(size, dtype, device)
    return grad_out, q, k, v, lse, row_products(grad_out, out), False


def key_inputs(size: Size, dtype: torch.dtype, device: str) -> Args:
    grad_out, q, k, v, out, lse = causal_gradient_inputs(size, dtype, device)
    return grad_out, q, k, v, lse, row_products(grad_out, out), True


def row_products(grad_out: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    return (grad_out.double() * out.double()).sum(-1).float()


def from_scores(*args: Any) -> attention.Three:
    """All gradients, in fp64, from what the kernels of single gradients are given."""
    grad_out, q, k, v, lse, inner, is_causal = args
    scale = q.size(-1) ** -0.5
    queries, keys, values, grads = (t.double() for t in (q, k, v, grad_out))
    scores = queries @ keys.mT * (scale * attention.LOG2_E)
    weights = torch.exp2(scores - lse.double()[..., None])
    weights = weights.tril() if is_causal else weights
    grad_scores = weights * (grads @ values.mT - inner.double()[..., None]) * scale
    return grad_scores @ keys, grad_scores.mT @ queries, weights.mT @ grads


def fp8_heads(size: Size, dtype: torch.dtype, device: str) -> Args:
    q, k, v = flat_heads(size, dtype, device)
    fp8 = torch.float8_e4m3fn
    return q.to(fp8), k.to(fp8), v.to(fp8).transpose(1, 2).contiguous()


def shared_heads(size: Size, dtype: torch.dtype, device: str) -> Args:
    b, m, n, d = size
    return tensors((b, 4, m, d), (b, 2, n, d), (b, 2, n, d), dtype=dtype, device=device)


def causal_blocks(size: Size, dtype: torch.dtype, device: str) -> Args:
    b, m, n, _ = size
    mask = flex_attention.make_block_mask(flex_attention.causal, (b, 4), (m, n), 16, device)
    modifiers = (flex_attention.no_change, flex_attention.causal)
    return *shared_heads(size, dtype, device), mask, *modifiers


def windows_with_slopes(size: Size, dtype: torch.dtype, device: str) -> Args:
    b, m, n, _ = size
    window = flex_attention.sliding_window(5)
    mask = flex_attention.make_block_mask(window, (b, 4), (m, n), 16, device)
    slopes = torch.tensor([1.0, 0.5, 0.25, 0.125], device=device)
    return *shared_heads(size, dtype, device), mask, flex_attention.alibi(slopes), window


# The softmax weights are rounded to the values' type before the second product.
ONCE = (1,)
# fmt: off
ATTENTION: tuple[Case, ...] = (
    Case("biased_attention", attention.biased_attention, heads_with_bias, attention.reference,
         blocks(1, 16, 16), HEADS, keys, ONCE),
    Case("attention_fwd", attention.attention_fwd, flat_heads, attention.reference_fwd,
         blocks(1, 16, 16), HEADS, keys, (1, 0)),
    # Scores are the difference of two sums; their gradient is rounded before its products.
    Case("attention_bwd", attention.attention_bwd, gradient_inputs, attention.reference_bwd,
         blocks(1, 16, 16, 1, 16, 16), HEADS, keys, (2, 2, 2)),
    Case("query_gradients", attention_backward.query_gradients, query_inputs,
         lambda *args: from_scores(*args)[0], blocks(1, 16, 16), HEADS, keys, (2,)),
    Case("key_value_gradients", attention_backward.key_value_gradients, key_inputs,
         lambda *args: from_scores(*args)[1:], blocks(1, 16, 16), SQUARES, keys, (2, 2)),
    Case("causal_fwd", causal_attention.causal_fwd, flat_heads, causal_attention.reference_fwd,
         blocks(1, 16, 16), SQUARES, keys, (1, 0)),
    Case("causal_bwd", causal_attention.causal_bwd, causal_gradient_inputs,
         causal_attention.reference_bwd, blocks(1, 16, 16, 1, 16, 16), SQUARES, keys, (2, 2, 2)),
    Case("blackwell_attention", blackwell_attention.blackwell_attention, flat_heads,
         blackwell_attention.reference, blocks(16, 16), HEADS, keys, ONCE),
    Case("xsa", xsa.xsa, flat_heads, xsa.reference, blocks(1, 16, 16), SQUARES, keys, (2,)),
    Case("fp8_attention", fp8_attention.fp8_attention, fp8_heads, fp8_attention.reference,
         blocks(16, 32), HEADS, keys, dtypes=(torch.float32,),
         rounded_to=(torch.float8_e4m3fn,), noticeable=0.25, is_interpretable=False,
         missing_targets=("cuda:80",)),
    Case("flex_attention_causal", flex_attention.flex_attention, causal_blocks,
         flex_attention.reference, blocks(16), SQUARES, keys, (1, 0)),
    Case("flex_attention_window", flex_attention.flex_attention, windows_with_slopes,
         flex_attention.reference, blocks(16), SQUARES, keys, (1, 0)),
)
# fmt: on
