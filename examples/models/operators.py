"""The operators of a transformer, twice: functions of torch, and kernels of the gallery.

A kernel is joined to its hand-written backward by ``register_backward``: torch then goes back
through a plain call of it, in eager mode and inside of ``torch.compile``. The gradient of the table
lookup is derived.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody writes it

from examples.causal_attention import causal_bwd, causal_fwd
from examples.cross_entropy import cross_entropy_bwd, cross_entropy_fwd
from examples.embedding import embedding
from examples.matmul import matmul, matmul_bwd
from examples.models.kernels import adamw_copying, rope_heads, rope_heads_bwd
from examples.ports.adamw import adamw
from examples.rms_norm import rms_norm, rms_norm_bwd
from examples.rope import rotate_half
from examples.swiglu import swiglu, swiglu_bwd

Tensor = torch.Tensor
LEARNING_RATE, BETAS, EPSILON, DECAY = 1e-3, (0.9, 0.95), 1e-8, 0.1


@dataclass(frozen=True)
class Operators:
    """What a model computes with."""

    embed: Callable[[Tensor, Tensor], Tensor]
    """Rows of a table by their numbers."""
    norm: Callable[[Tensor, Tensor], Tensor]
    """RMS normalisation of rows, one weight for each column."""
    product: Callable[[Tensor, Tensor], Tensor]
    """Of two matrices."""
    attend: Callable[[Tensor, Tensor, Tensor], Tensor]
    """Causal attention ``[batch, length, heads, d]`` of queries, keys and values ``[batch, length,
    3, heads, d]``, of which two are turned by cosines and sines of their positions."""
    gate: Callable[[Tensor, Tensor], Tensor]
    """``silu(gate) * up``."""
    loss: Callable[[Tensor, Tensor], Tensor]
    """Mean cross entropy of logits."""
    optimizer: Callable[..., Any]
    """AdamW of parameters, the type that they are used in, and those that are used as they are:
    has ``step`` and ``zero_grad``."""


def _eager_norm(x: Tensor, weight: Tensor) -> Tensor:
    return F.rms_norm(x, [x.size(-1)], weight, 1e-5)


def _eager_attend(qkv: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
    turned = [(x * cos + rotate_half(x) * sin).to(x.dtype) for x in (q, k)]
    out = F.scaled_dot_product_attention(*turned, v, is_causal=True)
    return out.transpose(1, 2)


def _eager_gate(gate: Tensor, up: Tensor) -> Tensor:
    return F.silu(gate) * up


def _eager_loss(logits: Tensor, labels: Tensor) -> Tensor:
    wide = torch.promote_types(logits.dtype, torch.float32)
    return F.cross_entropy(logits.to(wide), labels)


def _eager_optimizer(parameters: Iterable[torch.nn.Parameter], *uses: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(
        parameters, LEARNING_RATE, BETAS, EPSILON, weight_decay=DECAY, fused=True
    )


EAGER = Operators(
    F.embedding,
    _eager_norm,
    torch.mm,
    _eager_attend,
    _eager_gate,
    _eager_loss,
    _eager_optimizer,
)


# Copies: kernels of the gallery keep the gradients that they have there.
_norm, _product, _heads = copy.copy(rms_norm), copy.copy(matmul), copy.copy(rope_heads)
_attention, _gate, _losses = copy.copy(causal_fwd), copy.copy(swiglu), copy.copy(cross_entropy_fwd)


def _save_norm(ctx: Any, args: tuple[Any, ...], result: tuple[Tensor, Tensor]) -> None:
    ctx.set_materialize_grads(False)  # nobody goes back through the second result
    ctx.save_for_backward(args[0], args[1], result[1])


@_norm.register_backward(setup_context=_save_norm)
def _norm_gradient(ctx: Any, grad: Tensor, _: Any) -> tuple[Tensor, ...]:
    return rms_norm_bwd(grad, *ctx.saved_tensors)


def _save_factors(ctx: Any, args: tuple[Any, ...], result: Tensor) -> None:
    ctx.save_for_backward(args[0], args[1])


@_product.register_backward(setup_context=_save_factors)
def _product_gradient(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
    return matmul_bwd(grad, *ctx.saved_tensors)


def _save_angles(ctx: Any, args: tuple[Any, ...], result: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(args[1], args[2])
    ctx.batch = args[0].size(0)


@_heads.register_backward(setup_context=_save_angles)
def _heads_gradient(ctx: Any, *grads: Tensor) -> Tensor:
    return rope_heads_bwd(*grads, *ctx.saved_tensors, ctx.batch)


def _save_attention(ctx: Any, args: tuple[Any, ...], result: tuple[Tensor, Tensor]) -> None:
    ctx.set_materialize_grads(False)  # nobody goes back through the second result
    ctx.save_for_backward(*args, *result)


@_attention.register_backward(setup_context=_save_attention)
def _attention_gradient(ctx: Any, grad: Tensor, _: Any) -> tuple[Tensor, ...]:
    return causal_bwd(grad, *ctx.saved_tensors)


@_gate.register_backward(setup_context=_save_factors)
def _gate_gradient(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
    return swiglu_bwd(grad, *ctx.saved_tensors)


def _save_losses(ctx: Any, args: tuple[Any, ...], result: tuple[Tensor, Tensor]) -> None:
    ctx.set_materialize_grads(False)  # nobody goes back through the second result
    ctx.save_for_backward(*args, result[1])


@_losses.register_backward(setup_context=_save_losses)
def _losses_gradient(ctx: Any, grad: Tensor, _: Any) -> Tensor:
    return cross_entropy_bwd(grad, *ctx.saved_tensors)


def _kernel_norm(x: Tensor, weight: Tensor) -> Tensor:
    return _norm(x, weight)[0]


def _kernel_attend(qkv: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    batch, length, _, heads, dim = qkv.shape
    out, _ = _attention(*_heads(qkv, cos, sin))
    return out.view(batch, heads, length, dim).transpose(1, 2)


def _kernel_loss(logits: Tensor, labels: Tensor) -> Tensor:
    return _losses(logits, labels)[0].mean()


class KernelAdamW:
    """AdamW: one launch for each parameter, and one for all that are used in a narrower type.

    These become views of one narrow tensor. What is trained lies in another one of fp32, here; the
    launch that changes it writes the narrow copies too.
    """

    def __init__(
        self,
        parameters: Iterable[torch.nn.Parameter],
        kind: torch.dtype | None = None,
        wide: Iterable[torch.nn.Parameter] = (),
    ) -> None:
        kept = {id(parameter) for parameter in wide}
        is_narrow = kind is not None and kind.itemsize < 4
        self.plain: list[torch.nn.Parameter] = []
        self.narrow: list[torch.nn.Parameter] = []
        for parameter in parameters:
            (self.narrow if is_narrow and id(parameter) not in kept else self.plain).append(
                parameter
            )
        self.moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p in self.plain]
        self.num_steps = 0
        if self.narrow:
            self.trained = torch.cat([p.detach().view(-1) for p in self.narrow])
            self.copies = self.trained.to(kind)
            self.all_moments = torch.zeros_like(self.trained), torch.zeros_like(self.trained)
            parts = self.copies.split([p.numel() for p in self.narrow])
            for parameter, part in zip(self.narrow, parts):
                parameter.data = part.view(parameter.shape)

    @torch.no_grad()
    def step(self) -> None:
        """Update parameters and moments in place."""
        self.num_steps += 1
        numbers = (self.num_steps, LEARNING_RATE, BETAS, EPSILON, DECAY)
        for parameter, moments in zip(self.plain, self.moments):
            adamw(parameter, parameter.grad, *moments, *numbers)
        if self.narrow:
            grads = torch.cat([parameter.grad.view(-1) for parameter in self.narrow])
            adamw_copying(self.copies, self.trained, grads, *self.all_moments, *numbers)

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for parameter in (*self.plain, *self.narrow):
            parameter.grad = None


KERNELS = Operators(
    embedding,
    _kernel_norm,
    _product,
    _kernel_attend,
    _gate,
    _kernel_loss,
    KernelAdamW,
)
