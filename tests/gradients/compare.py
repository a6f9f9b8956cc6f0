"""Derived gradients next to those that torch derives from a reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tests.examples.case import Args, Case, Size
from tilesmith.frontend.containers import tensors_in
from tilesmith.gradients.derived import DerivedBackward


def partial_size(case: Case) -> Size:
    """The size with partial tiles along every axis."""
    return [size for size in case.sizes if 0 not in size][-1]


def leaves(args: Args) -> Args:
    """The arguments, with floats that a gradient is wanted of."""
    return tuple(arg.detach().clone().requires_grad_() if is_float(arg) else arg for arg in args)


def is_float(arg: Any) -> bool:
    """Whether gradients are asked for: not of what is stored in bytes."""
    return isinstance(arg, torch.Tensor) and arg.is_floating_point() and arg.element_size() > 1


def derive(kernel: Any, args: Args) -> DerivedBackward:
    return DerivedBackward(kernel.bind(args))


def floats_in(returned: Any) -> list[torch.Tensor]:
    return [tensor for tensor in tensors_in(returned) if tensor.is_floating_point()]


def cotangents(outputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Random, and none that inputs are made from."""
    generator = torch.Generator().manual_seed(12345)
    return [
        torch.randn(out.shape, generator=generator, dtype=torch.float64).to(out.dtype)
        for out in outputs
    ]


def gradients(call: Callable[..., Any], args: Args, grads: Sequence[torch.Tensor]) -> list[Any]:
    """What autograd finds for each float argument; zeros where it finds nothing."""
    outputs = floats_in(call(*args))
    pairs = [(out, grad) for out, grad in zip(outputs, grads) if out.requires_grad]
    wanted = [arg for arg in args if is_float(arg)]
    found: Any = torch.autograd.grad(
        [out for out, _ in pairs],
        wanted,
        [grad.to(out.dtype) for out, grad in pairs],
        allow_unused=True,
    )
    return [torch.zeros_like(x) if g is None else g for x, g in zip(wanted, found)]


def relative_error(actual: torch.Tensor, exact: torch.Tensor) -> float:
    scale = exact.double().norm().item()
    apart = (actual.double() - exact.double()).norm().item()
    return apart / scale if scale else apart


def present(tensor: torch.Tensor | None) -> torch.Tensor:
    assert tensor is not None
    return tensor
