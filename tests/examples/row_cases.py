"""Reductions, normalisation and losses along rows, as data."""

from __future__ import annotations

from functools import partial

import torch

from examples import (
    aot_example,
    batch_softmax,
    fused_linear_jsd,
    grpo_loss,
    jsd,
    kl_div,
    long_sum,
    rms_norm,
    segment_reduction,
    softmax,
    welford,
)
from examples.acfs import softmax_acf
from tests.examples.case import (
    Args,
    Case,
    Size,
    blocks,
    first,
    larger,
    last,
    plane,
    tensors,
    two_planes,
)
from tilesmith.numerics.inputs import random_tensor

ROWS: tuple[Size, ...] = ((1, 1), (37, 53))
# A row of one has no gradient but rounding.
LONG_ROWS: tuple[Size, ...] = ((0, 5), (1, 2), (37, 53))
LOSSES: tuple[Size, ...] = ((1, 2), (37, 53))
BATCHES: tuple[Size, ...] = ((0, 3, 5), (1, 1, 1), (3, 17, 53))
# Rows, hidden width, classes.
HEADS: tuple[Size, ...] = ((1, 2, 3), (37, 19, 53))
# Rows, columns, segments; of the last, some hold many rows and some none.
SEGMENTS: tuple[Size, ...] = ((0, 5, 3), (1, 1, 1), (53, 37, 19))
# Sequences, tokens, classes.
TOKENS: tuple[Size, ...] = ((1, 1, 2), (3, 17, 53))
HALVES = (torch.float32, torch.bfloat16)
EPS = 1e-5
IGNORED = -100


def softmax_gradient_inputs(size: Size, dtype: torch.dtype, device: str) -> Args:
    grad_out, x = two_planes(size, dtype, device)
    return grad_out, torch.softmax(x.double(), -1).to(dtype)


def rms_gradient_inputs(size: Size, dtype: torch.dtype, device: str) -> Args:
    grad_out, x, weight = tensors(size, size, size[1:], dtype=dtype, device=device)
    _, inverse = rms_norm.reference(x, weight, EPS)
    return grad_out, x, weight, inverse.float()


def affine_inputs(size: Size, dtype: torch.dtype, device: str) -> Args:
    return *tensors(size, size[1:], size[1:], dtype=dtype, device=device), EPS


def log_probabilities(size: Size, dtype: torch.dtype, device: str) -> tuple[torch.Tensor, ...]:
    return tuple(x.double().log_softmax(-1).to(dtype) for x in two_planes(size, dtype, device))


def divergence_inputs(
    reduction: str, log_target: bool, size: Size, dtype: torch.dtype, device: str
) -> Args:
    pred, target = log_probabilities(size, dtype, device)
    if not log_target:
        # Some classes are impossible.
        target = torch.where(target < target.float().mean(), 0, target.exp())
    return pred, target, reduction, log_target


def mixture_inputs(
    beta: float, is_labelled: bool, size: Size, dtype: torch.dtype, device: str
) -> Args:
    rows = torch.arange(size[0], device=device)
    labels = torch.where(rows % 3 == 1, IGNORED, rows) if is_labelled else None
    return *log_probabilities(size, dtype, device), labels, beta, IGNORED


def heads(size: Size, dtype: torch.dtype, device: str) -> Args:
    n, k, v = size
    made = tensors((n, k), (v, k), (n, k), (v, k), dtype=dtype, device=device)
    return *made, 0.25, 2.0


def one_head(size: Size, dtype: torch.dtype, device: str) -> Args:
    return heads(size, dtype, device)[:2]


def two_logits(size: Size, dtype: torch.dtype, device: str) -> Args:
    return *two_planes(size, dtype, device), 0.75, 1.5


def policy_inputs(size: Size, dtype: torch.dtype, device: str) -> Args:
    batch, length, vocab = size
    (logits,) = tensors((batch, length + 1, vocab), dtype=dtype, device=device)
    positions = torch.arange(batch * length, device=device).view(batch, length)
    ids = (positions * 7 + 1) % vocab
    logp = logits.double()[:, :length].log_softmax(-1).gather(-1, ids[:, :, None]).squeeze(-1)
    # Far enough apart that some tokens are clipped either way.
    old, ref = (
        (logp + random_tensor(ids.shape, torch.float64, seed=seed, device=device, scale=0.4))
        for seed in (5, 6)
    )
    advantages = random_tensor([batch], torch.float32, seed=7, device=device)
    return logits, ids, advantages, old.float(), ref.float(), positions % 5 != 3, 0.9, 0.1


def bare_policy_inputs(size: Size, dtype: torch.dtype, device: str) -> Args:
    logits, ids, advantages, *_ = policy_inputs(size, dtype, device)
    return logits, ids, advantages, None, None, None


def policy_gradient_inputs(size: Size, dtype: torch.dtype, device: str) -> Args:
    args = policy_inputs(size, dtype, device)
    *_, lse = grpo_loss.reference(*args)
    return random_tensor(lse.shape, torch.float32, seed=8, device=device), lse.float(), *args


def bare_policy_gradient_inputs(size: Size, dtype: torch.dtype, device: str) -> Args:
    args = bare_policy_inputs(size, dtype, device)
    *_, lse = grpo_loss.reference(*args)
    return random_tensor(lse.shape, torch.float32, seed=8, device=device), lse.float(), *args


def segments(size: Size, dtype: torch.dtype, device: str) -> Args:
    rows, columns, count = size
    ids = (torch.arange(rows, device=device) ** 2 * count) // max(1, rows**2)
    return ids, *plane((rows, columns), dtype, device), count


def everything(size: Size) -> int:
    """One number out of all elements."""
    return size[0] * size[1]


def hidden_and_classes(size: Size) -> int:
    """A logit sums the hidden width, a row's loss the classes."""
    return size[0] * size[1] * size[2]


def divergence(name: str, reduction: str, log_target: bool) -> Case:
    inputs = partial(divergence_inputs, reduction, log_target)
    dtypes = HALVES if log_target else (torch.float32,)
    return Case(
        name, kl_div.kl_div, inputs, kl_div.reference, blocks(16, 16), LOSSES, everything,
        dtypes=dtypes,
    )  # fmt: skip


def mixture(name: str, beta: float, is_labelled: bool) -> Case:
    inputs = partial(mixture_inputs, beta, is_labelled)
    dtypes = HALVES if is_labelled else (torch.float32,)
    return Case(
        name, jsd.jsd, inputs, jsd.reference, blocks(16, 16), LOSSES, everything, dtypes=dtypes
    )


# fmt: off
ROWWISE: tuple[Case, ...] = (
    Case("softmax_bwd", softmax.softmax_bwd, softmax_gradient_inputs, softmax.reference_bwd,
         blocks(16), LONG_ROWS, last),
    Case("softmax_acf", softmax_acf.softmax_acf, plane, softmax_acf.reference,
         blocks(16, advanced_controls_file="softmax.acf"), ROWS, last, dtypes=HALVES),
    Case("batch_softmax", batch_softmax.batch_softmax, plane, batch_softmax.reference,
         blocks(2, 16), BATCHES, last),
    Case("rms_norm_bwd", rms_norm.rms_norm_bwd, rms_gradient_inputs, rms_norm.reference_bwd,
         blocks(32, 16), LONG_ROWS, larger),
    Case("welford", welford.welford, affine_inputs, welford.reference,
         blocks(16, 16), LONG_ROWS, last),
    Case("row_softmax", aot_example.row_softmax, plane, softmax.reference,
         blocks(16), ROWS, last, dtypes=HALVES),
    Case("row_sum", aot_example.row_sum, plane, long_sum.reference,
         blocks(16), ROWS, last, dtypes=HALVES),
    divergence("kl_div_none", "none", True),
    divergence("kl_div_sum", "sum", False),
    divergence("kl_div_mean", "mean", False),
    divergence("kl_div_batchmean", "batchmean", True),
    mixture("jsd_low", 0.0, False),
    mixture("jsd_high", 1.0, True),
    mixture("jsd_mixed", 0.3, False),
    mixture("jsd_mixed_labelled", 0.5, True),
    Case("linear", fused_linear_jsd.linear, one_head, fused_linear_jsd.reference_linear,
         blocks(16, 16, 16), HEADS, hidden_and_classes, dtypes=HALVES),
    Case("jsd_of_logits", fused_linear_jsd.jsd_of_logits, two_logits,
         fused_linear_jsd.reference_of_logits, blocks(16), LOSSES, everything,
         dtypes=(torch.float32,)),
    Case("recomputing_linear_jsd", fused_linear_jsd.recomputing_linear_jsd, heads,
         fused_linear_jsd.reference, blocks(16, 16, 16), HEADS, hidden_and_classes, dtypes=HALVES),
    Case("grpo_loss_fwd", grpo_loss.grpo_loss_fwd, policy_inputs, grpo_loss.reference,
         blocks(2, 8, 16), TOKENS, last, dtypes=HALVES),
    Case("grpo_loss_fwd_bare", grpo_loss.grpo_loss_fwd, bare_policy_inputs, grpo_loss.reference,
         blocks(2, 8, 16), TOKENS, last, dtypes=HALVES),
    Case("grpo_loss_bwd", grpo_loss.grpo_loss_bwd, policy_gradient_inputs,
         grpo_loss.reference_bwd, blocks(2, 8, 16), TOKENS, last, dtypes=HALVES),
    Case("grpo_loss_bwd_bare", grpo_loss.grpo_loss_bwd, bare_policy_gradient_inputs,
         grpo_loss.reference_bwd, blocks(2, 8, 16), TOKENS, last, dtypes=HALVES),
    Case("segment_reduction", segment_reduction.segment_reduction, segments,
         segment_reduction.reference, blocks(16, 16), SEGMENTS, first),
)
# fmt: on
