"""What may still change: gradients of kernels, computed by a call, and packages of kernels."""

from __future__ import annotations

from typing import Any

import torch

from tilesmith.export.package import export_package
from tilesmith.frontend.containers import tensors_in
from tilesmith.gradients.derived import DerivedBackward
from tilesmith.jit.kernel import Kernel

__all__ = ["backward", "export_package"]


def backward(
    kernel: Kernel,
    grad_out: Any,
    *inputs: Any,
    return_code: bool = False,
    autotune: bool = False,
    autotune_effort: str | None = None,
) -> Any:
    """The gradients of a kernel's float tensors, given those of its results.

    Example:
        ``grad_x, grad_y = tilesmith.experimental.backward(kernel, grad_out, x, y)``

    Args:
        kernel: a kernel of one launch; it runs once more, on the same arguments.
        grad_out: the gradient of the result, or of all results that are tensors; those at the end
            may be left out, and None means zeros.
        inputs: the kernel's arguments.
        return_code: also return the source of the backward kernel, and its Triton module.
        autotune: search for a config of the backward kernel.
        autotune_effort: how long to search.
    """
    args = kernel.normalize_args(*inputs)
    bound: Any = kernel.bind(inputs)
    derived = DerivedBackward(bound, keeps_latest=True)
    grads: list[Any] = list(grad_out) if isinstance(grad_out, (tuple, list)) else [grad_out]
    found = derived.run(args, grads)
    if autotune and derived.latest is not None:
        options = {} if autotune_effort is None else {"effort": autotune_effort}
        derived.latest[0].autotune(derived.latest[1], **options)
        found = derived.run(args, grads)
    floats = [
        torch.zeros_like(tensor) if grad is None else grad
        for tensor, grad in zip(tensors_in(args), found)
        if tensor.is_floating_point()
    ]
    result = floats[0] if len(floats) == 1 else tuple(floats)
    if not return_code:
        return result
    # Scripts find the kernel in the text by this name, whatever the forward is called.
    text = f"{derived.source}\nbackward_kernel = {kernel.name}_backward\n"
    return result, text, _triton_code(derived)


def _triton_code(derived: DerivedBackward) -> str:
    """The module of the backward kernel that ran; empty where nothing had to run."""
    if derived.latest is None:
        return ""
    kernel, args = derived.latest
    return kernel.bind(args).to_triton_code()
