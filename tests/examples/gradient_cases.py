"""Every `torch.autograd.Function` of the gallery, with small fp64 arguments to check it at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from examples import (
    attention,
    attention_backward,
    causal_attention,
    cross_entropy,
    dot_compress,
    exp,
    geglu,
    grpo_loss,
    layer_norm,
    low_mem_dropout,
    matmul,
    rms_norm,
    rope,
    se_block,
    softmax,
    squeeze_and_excitation_net,
    swiglu,
)
from examples.linear import channel_decay, scalar_decay
from tilesmith.numerics.inputs import random_tensor

Args = tuple[Any, ...]


@dataclass(frozen=True)
class GradientCase:
    """One function at one kind of arguments.

    Attributes:
        name: unique, also the test id.
        function: the `torch.autograd.Function`.
        make_args: its arguments; fp64 tensors that require a gradient are those it is checked for.
    """

    name: str
    function: type[torch.autograd.Function]
    make_args: Callable[[], Args]

    def __str__(self) -> str:
        return self.name


def fp64(*shape: int, seed: int = 0) -> torch.Tensor:
    """Normal fp64 values whose gradient is wanted."""
    return random_tensor(shape, torch.float64, seed=seed).requires_grad_()


def policy_args(*, is_bare: bool) -> Args:
    logits = fp64(2, 6, 7)
    ids = (torch.arange(10) * 3 % 7).view(2, 5)
    advantages = torch.tensor([1.5, -0.5], dtype=torch.float64)
    logp = logits.detach()[:, :5].log_softmax(-1).gather(-1, ids[:, :, None]).squeeze(-1)
    # Some tokens are clipped either way; none is at an edge, where there is no derivative.
    old = logp + torch.tensor([-0.4, -0.1, 0.0, 0.1, 0.4], dtype=torch.float64)
    if is_bare:
        return logits, ids, advantages, old, None, None
    mask = torch.arange(10).view(2, 5) % 4 != 3
    return logits, ids, advantages, old, old.flip(1), mask, 0.7, 0.3


GRADIENTS: tuple[GradientCase, ...] = (
    GradientCase("exp", exp.Exp, lambda: (fp64(3, 5),)),
    GradientCase("geglu", geglu.GeGLU, lambda: (fp64(3, 5), fp64(3, 5, seed=1))),
    GradientCase("swiglu", swiglu.SwiGLU, lambda: (fp64(3, 1, 5), fp64(3, 1, 5, seed=1))),
    GradientCase("dropout", low_mem_dropout.LowMemDropout, lambda: (fp64(3, 5), 0.3, 11)),
    GradientCase(
        "rope",
        rope.RoPE,
        lambda: (
            fp64(2, 4, 3, 6),
            fp64(2, 2, 3, 6, seed=1),
            random_tensor((3, 6), torch.float64, seed=2),
            random_tensor((3, 6), torch.float64, seed=3),
        ),
    ),
    GradientCase(
        "rope_interleaved",
        rope.InterleavedRoPE,
        lambda: (
            fp64(2, 3, 3, 6),
            random_tensor((3, 3), torch.float64, seed=2),
            random_tensor((3, 3), torch.float64, seed=3),
        ),
    ),
    GradientCase("softmax", softmax.Softmax, lambda: (fp64(3, 5),)),
    GradientCase(
        "layer_norm",
        layer_norm.LayerNorm,
        lambda: (fp64(3, 5), fp64(5, seed=1), fp64(5, seed=2), 1e-5),
    ),
    GradientCase(
        "layer_norm_no_bias",
        layer_norm.LayerNorm,
        lambda: (fp64(3, 5), fp64(5, seed=1), None, 1e-5),
    ),
    GradientCase("rms_norm", rms_norm.RMSNorm, lambda: (fp64(3, 5), fp64(5, seed=1), 1e-5)),
    GradientCase("grpo_loss", grpo_loss.GRPOLoss, lambda: policy_args(is_bare=False)),
    GradientCase("grpo_loss_bare", grpo_loss.GRPOLoss, lambda: policy_args(is_bare=True)),
    GradientCase("matmul", matmul.MatMul, lambda: (fp64(3, 5), fp64(5, 4, seed=1))),
    GradientCase(
        "addmm",
        matmul.AddMM,
        lambda: (fp64(4), fp64(3, 5, seed=1), fp64(5, 4, seed=2), 0.5, 1.5),
    ),
    GradientCase(
        "dot_compress",
        dot_compress.DotCompress,
        lambda: (fp64(2, 5, 3), fp64(2, 5, 4, seed=1), fp64(2, 3, 4, seed=2)),
    ),
    GradientCase(
        "scalar_decay",
        scalar_decay.ScalarDecay,
        lambda: (fp64(2, 5, 3), fp64(2, 5, 3, seed=1), fp64(2, 5, 4, seed=2), fp64(2, 5, seed=3)),
    ),
    GradientCase(
        "channel_decay",
        channel_decay.ChannelDecay,
        lambda: (
            fp64(2, 5, 3),
            fp64(2, 5, 3, seed=1),
            fp64(2, 5, 4, seed=2),
            fp64(2, 5, 3, seed=3),
        ),
    ),
    GradientCase("se_block", se_block.SEBlock, lambda: (fp64(3, 5), fp64(5, 5, seed=1))),
    GradientCase(
        "squeeze_excite",
        squeeze_and_excitation_net.SqueezeExcite,
        lambda: (fp64(3, 5), fp64(5, 4, seed=1), fp64(4, 5, seed=2)),
    ),
    GradientCase(
        "cross_entropy",
        cross_entropy.CrossEntropy,
        lambda: (fp64(3, 5), torch.tensor([4, 0, 2])),
    ),
    GradientCase(
        "causal_attention",
        causal_attention.CausalAttention,
        lambda: (fp64(2, 5, 4), fp64(2, 5, 4, seed=1), fp64(2, 5, 4, seed=2)),
    ),
    GradientCase(
        "attention_backward",
        attention_backward.Attention,
        lambda: (fp64(2, 5, 4), fp64(2, 5, 4, seed=1), fp64(2, 5, 4, seed=2), True),
    ),
    GradientCase(
        "attention",
        attention.Attention,
        lambda: (fp64(2, 3, 4), fp64(2, 5, 4, seed=1), fp64(2, 5, 4, seed=2)),
    ),
)
