"""How the gradient of a kernel is computed: by a function that was registered for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tilesmith.diagnostics import operator_errors as errors
from tilesmith.frontend.containers import tensors_in

Backward = Callable[..., Any]
SetupContext = Callable[[Any, tuple[Any, ...], Any], None]


@dataclass(frozen=True)
class Gradient:
    """A backward function, as ``Kernel.register_backward`` takes it."""

    backward: Backward
    """Takes the context and the gradient of each tensor that the kernel returns."""
    setup_context: SetupContext | None = None
    """Saves what backward needs; None: all arguments and the result."""

    def save(self, ctx: Any, args: tuple[Any, ...], result: Any) -> None:
        """Called with the context of a forward call."""
        if self.setup_context is not None:
            self.setup_context(ctx, args, result)
            return
        ctx.save_for_backward(*tensors_in(args), *tensors_in(result))

    def of_parameters(
        self, ctx: Any, gradients: Sequence[torch.Tensor], function: str, num_parameters: int
    ) -> Sequence[Any]:
        """What backward gives: a gradient or None for each parameter."""
        given = self.backward(ctx, *gradients)
        listed = tuple(given) if isinstance(given, (tuple, list)) else (given,)
        if len(listed) > num_parameters:
            raise errors.WrongGradients(function=function, count=len(listed), num=num_parameters)
        return (*listed, *(None for _ in range(num_parameters - len(listed))))


def needs_gradient(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether torch records calculations, and one with these tensors is to be recorded."""
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def stands_for_another(tensor: torch.Tensor) -> bool:
    """Whether operators with a tensor are its own business, or it has no memory of its own."""
    if tensor.layout is not torch.strided or tensor.is_nested or tensor.is_meta:
        return False  # has a refusal of its own
    if _dispatch_of(type(tensor)) is not _dispatch_of(torch.Tensor):
        return True
    try:
        return tensor.numel() != 0 and tensor.untyped_storage().data_ptr() == 0
    except RuntimeError:
        return True


def _dispatch_of(kind: Any) -> Any:
    return kind.__torch_dispatch__
