"""Operators in graphs that torch has differentiated: there autograd need not look at them again.

An operator with a gradient pays for it in each call, also where none is wanted: torch asks in
Python, then begins its way to the device anew. That takes 4 us, half of what a small kernel does.
So compiled graphs hold an overload without a gradient, `tilesmith::name.inner`; where one is
wanted, the graph is given the backward while torch traces it. Kernels have no derivative in the
forward mode of autograd, and say so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch.autograd import forward_ad

from tilesmith.diagnostics import operator_errors as errors

NAMESPACE = "tilesmith"


@cache
def _implementations() -> torch.library.Library:
    return torch.library.Library(NAMESPACE, "FRAGMENT")


def implement(name: str, run: Callable[..., Any]) -> None:
    """Call a function itself on devices that have kernels: what torch puts around it takes 5 us."""
    for device in ("CPU", "CUDA"):
        _implementations().impl(name, run, device)


class InnerOperator:
    """The overload ``inner`` of an operator that writes nothing."""

    def __init__(
        self, name: str, schema: str, run: Callable[..., Any], fake: Callable[..., Any]
    ) -> None:
        library, full = _implementations(), f"{name}.inner"
        library.define(f"{full}{schema}", tags=(torch.Tag.pt2_compliant_tag,))
        implement(full, run)
        torch.library.register_fake(f"{NAMESPACE}::{full}", fake, lib=library)
        self.definition: Any = getattr(torch.ops.tilesmith, name).inner

    def __call__(self, leaves: Sequence[Any], gradient: Any) -> Any:
        """What the operator returns; ``gradient``, where it is wanted, goes into the graph too."""
        if gradient is None:
            return self.definition(*leaves)
        return _GraphedCall.apply(*leaves, (self.definition, gradient))


class _GraphedCall(torch.autograd.Function):
    """Takes the leaves of a call and, last, the operator and its gradient."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Any:
        """Put the operator into the graph."""
        *leaves, (definition, gradient) = inputs
        made = definition(*leaves)
        ctx.gradient = gradient
        gradient.save(ctx, tuple(leaves), made)
        return made

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """A gradient for each leaf."""
        return *ctx.gradient.backward(ctx, *gradients), None


def is_traced(tensor: torch.Tensor) -> bool:
    """Whether a tensor only stands for one, while torch makes a graph."""
    return type(tensor).__module__.startswith("torch._subclasses")


@torch.compiler.assume_constant_result
def is_exporting() -> bool:
    """Asked outside of Dynamo: that of torch 2.10 to 2.12 takes every graph for an export."""
    return torch.compiler.is_exporting()


FORWARD_MODE = forward_ad.__dict__, "_current_level", -1
"""Where torch notes how many levels of dual numbers there are, and what stands there for none."""


def has_levels() -> bool:
    """Whether there may be dual numbers."""
    names, level, none = FORWARD_MODE
    return names.get(level, none) != none


def check_tangents(function: str, values: Sequence[Any]) -> None:
    """Refuse dual numbers of forward mode: kernels would lose their tangents."""
    if not has_levels():
        return
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    if any(map(_has_tangent, tensors)):
        raise errors.NoForwardMode(function=function)


def _has_tangent(tensor: torch.Tensor) -> bool:
    try:
        return forward_ad.unpack_dual(tensor).tangent is not None
    except RuntimeError:  # inside of a dispatch mode torch does not tell
        return True
