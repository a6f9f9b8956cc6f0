"""A call as a node of autograd: in eager mode, and under transforms of ``torch.func``.

Operators have gradients of their own, but a call through torch's dispatcher costs an order of
magnitude more than this, and ``torch.func`` does not go through operators at all.
"""

from __future__ import annotations

from typing import Any

import torch

from tilesmith.operators.operator import NOT_IN_TRANSFORMS, KernelOperator
from tilesmith.operators.structure import Parts


class _RecordedCall(torch.autograd.Function):
    """Takes the leaves of a call and, last, the call: numbers of inputs are those of leaves."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Any:
        """Run the kernel and keep what the gradient needs."""
        operator, args = inputs[-1]
        result = operator.call_kernel(args)
        ctx.operator = operator
        operator.gradient.save_call(ctx, args, result)
        return operator.returned(result)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """A gradient for each leaf."""
        return *ctx.operator.gradient.backward(ctx, *gradients), None


class _TransformedCall(torch.autograd.Function):
    """The same for tensors of transforms: what they stand for goes to the operator."""

    generate_vmap_rule = True

    @staticmethod
    def forward(*inputs: Any) -> Any:
        """Call the operator, one transform further inside."""
        *leaves, operator = inputs
        made = call_transformed(operator, operator.parts(leaves))
        return made[0] if len(made) == 1 else tuple(made)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Keep what the gradient needs."""
        *leaves, operator = inputs
        ctx.operator = operator
        operator.gradient.save(ctx, tuple(leaves), output)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """A gradient for each leaf."""
        return *ctx.operator.gradient.backward(ctx, *gradients), None


def call_recorded(
    operator: KernelOperator, parts: Parts, args: tuple[Any, ...]
) -> list[torch.Tensor]:
    """The tensors that a call in eager mode makes; autograd goes back through it."""
    return _as_list(_RecordedCall.apply(*operator.in_order(parts), (operator, args)))


def call_transformed(operator: KernelOperator, parts: Parts) -> list[torch.Tensor]:
    """The same under transforms of ``torch.func``."""
    try:
        return operator(parts)
    except RuntimeError as error:
        if NOT_IN_TRANSFORMS not in str(error):
            raise
    return _as_list(_TransformedCall.apply(*operator.in_order(parts), operator))


def _as_list(made: Any) -> list[torch.Tensor]:
    return list(made) if isinstance(made, tuple) else [made]
