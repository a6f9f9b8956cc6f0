"""PyTorch's attention by each of its own kernels: what it picks by itself is not always fastest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from tilesmith.bench.implementations import NotAvailableError

BACKENDS = {
    "sdpa_cudnn": SDPBackend.CUDNN_ATTENTION,
    "sdpa_flash": SDPBackend.FLASH_ATTENTION,
    "sdpa_efficient": SDPBackend.EFFICIENT_ATTENTION,
}
NO_KERNEL = "No available kernel"
"""What PyTorch says where the kernel that it was told to use does not fit."""
Function = Callable[..., torch.Tensor]


def _by(backend: SDPBackend, *, is_causal: bool) -> Function:
    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *_: Any) -> torch.Tensor:
        if not q.is_cuda:
            raise NotAvailableError("PyTorch has this kernel for GPUs only")
        is_shared = q.size(1) != k.size(1)
        try:
            with sdpa_kernel(backend):
                return scaled_dot_product_attention(
                    q, k, v, is_causal=is_causal, enable_gqa=is_shared
                )
        except RuntimeError as error:
            # Not every kernel takes heads that share keys, and none says so before it is called.
            if NO_KERNEL not in str(error):
                raise
            raise NotAvailableError("PyTorch's kernel does not take these arguments") from error

    return attention


plain_cudnn, plain_flash, plain_efficient = (
    _by(backend, is_causal=False) for backend in BACKENDS.values()
)
causal_cudnn, causal_flash, causal_efficient = (
    _by(backend, is_causal=True) for backend in BACKENDS.values()
)


def peers(kind: str) -> dict[str, str]:
    """Further implementations of an operator; ``kind`` is plain or causal."""
    return {name: f"{__name__}:{kind}_{name.removeprefix('sdpa_')}" for name in BACKENDS}
