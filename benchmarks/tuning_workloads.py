"""What the tuning benchmark adds to the GPU workloads: founding cases, losses, skinny products."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn import functional
from typing_extensions import override

from benchmarks.workloads import WORKLOADS, Shape, Tensors, Workload, in_float64


@dataclass(frozen=True)
class TransposedProduct(Workload):
    """A product whose second factor arrives transposed, as benchmarks of GEMMs make it."""

    @override
    def inputs(self, device: torch.device, *, smoke: bool) -> Tensors:
        x, y = super().inputs(device, smoke=smoke)
        return x, y.t().contiguous().t()


@dataclass(frozen=True)
class Loss(Workload):
    """Logits with a label for each row."""

    @override
    def inputs(self, device: torch.device, *, smoke: bool) -> Tensors:
        (logits,) = super().inputs(device, smoke=smoke)
        generator = torch.Generator(device).manual_seed(1)
        shape = (logits.size(0),)
        return logits, torch.randint(
            logits.size(1), shape, device=device, generator=generator, dtype=torch.int64
        )


def eager_rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return functional.rms_norm(x, weight.shape, weight, 1e-5)


def exact_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(logits.double(), labels)


def eager_product_norm(
    x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor
) -> torch.Tensor:
    return functional.layer_norm(x @ y, weight.shape, weight, bias)


def product_flops(shapes: tuple[Shape, ...]) -> Callable[[Shape], int]:
    """Operations of a product of these shapes (the smoke run does not show rates)."""
    (m, k), (_, n) = shapes[:2]
    return lambda shape: 2 * m * n * k


def product(name: str, shapes: tuple[Shape, ...], dtype: torch.dtype, kernel: str) -> Workload:
    """A plain or split matrix product."""
    return TransposedProduct(
        name,
        kernel,
        kernel,
        shapes,
        ((64, 64),) * 2,
        dtype,
        torch.mm,
        in_float64(torch.mm),
        lambda shape: shape[1],
        # Parts of a split product are added up in the output's type.
        roundings=int(kernel == "matmul_split_k"),
        flops=product_flops(shapes),
    )


def product_norm(m: int, k: int, n: int, dtype: torch.dtype) -> Workload:
    """A cell of founding case 3."""
    shapes = ((m, k), (k, n), (n,), (n,))
    name = f"matmul_layernorm {str(dtype).removeprefix('torch.')} {m}x{k}x{n}"
    return Workload(
        name,
        "matmul_layernorm",
        "matmul_layernorm",
        shapes,
        ((33, 64), (64, 128), (128,), (128,)),
        dtype,
        eager_product_norm,
        in_float64(eager_product_norm),
        lambda shape: shape[1],
        # Eager rounds the product to its type before the norm; the kernel does not.
        roundings=1,
        flops=product_flops(shapes[:2]),
    )


TUNING_WORKLOADS: tuple[Workload, ...] = (
    *WORKLOADS,
    product("matmul fp16 256^3", ((256, 256),) * 2, torch.float16, "matmul"),
    product("split_k fp16 256^3", ((256, 256),) * 2, torch.float16, "matmul_split_k"),
    product("matmul fp16 384^3", ((384, 384),) * 2, torch.float16, "matmul"),
    product("split_k fp16 384^3", ((384, 384),) * 2, torch.float16, "matmul_split_k"),
    product("skinny bf16 16x4096x4096", ((16, 4096), (4096, 4096)), torch.bfloat16, "matmul"),
    Workload(
        "rms_norm bf16 8192x8192",
        "rms_norm",
        "rms_norm",
        ((8192, 8192), (8192,)),
        ((33, 100), (100,)),
        torch.bfloat16,
        eager_rms_norm,
        in_float64(eager_rms_norm),
        lambda shape: shape[1],
    ),
    Loss(
        "cross_entropy bf16 8192x32000",
        "cross_entropy",
        "cross_entropy",
        ((8192, 32000),),
        ((33, 100),),
        torch.bfloat16,
        functional.cross_entropy,
        exact_loss,
        lambda shape: shape[1],
        # The kernel keeps its mean in float32; eager rounds it to the type of the logits.
        may_widen=True,
    ),
    product_norm(131072, 512, 512, torch.bfloat16),
    product_norm(131072, 512, 2048, torch.bfloat16),
    product_norm(1024, 1024, 1024, torch.bfloat16),
    product_norm(1024, 1024, 1024, torch.float32),
    product_norm(131072, 4096, 2048, torch.bfloat16),
)
