"""What the GPU benchmark runs: kernels of examples/ at real sizes, in eager form and in float64."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from tilesmith.numerics.inputs import random_tensor

Shape = tuple[int, ...]
Tensors = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Workload:
    """One kernel at one size.

    Attributes:
        name: shown in tables, unique.
        module: file in examples/.
        kernel: name of the kernel in it.
        shapes: shapes of the tensor arguments.
        smoke_shapes: the same in small, to try the benchmark itself.
        dtype: type of the arguments and of the first result.
        eager: the same in PyTorch.
        exact: the same in float64.
        reduction_length: terms of the longest sum behind one element, from the shapes.
        roundings: intermediates rounded to the input type before they are summed.
        flops: operations, from the shapes; zero where memory is the limit.
        may_widen: whether a result of float32 is as good as one of the inputs' type.
    """

    name: str
    module: str
    kernel: str
    shapes: tuple[Shape, ...]
    smoke_shapes: tuple[Shape, ...]
    dtype: torch.dtype
    eager: Callable[..., torch.Tensor]
    exact: Callable[..., torch.Tensor]
    reduction_length: Callable[[Shape], int] = lambda shape: 1
    roundings: int = 0
    flops: Callable[[Shape], int] = lambda shape: 0
    may_widen: bool = False

    def inputs(self, device: torch.device, *, smoke: bool) -> Tensors:
        """Fresh random tensors; never zeros, which hide errors and run faster than real data."""
        shapes = self.smoke_shapes if smoke else self.shapes
        # Half-precision products in eager PyTorch crash on CPUs whose AMX unit is masked.
        dtype = torch.float32 if device.type == "cpu" else self.dtype
        return tuple(
            random_tensor(shape, dtype, seed=seed, device=device)
            for seed, shape in enumerate(shapes)
        )

    def result_dtype(self, found: torch.dtype, given: torch.dtype) -> torch.dtype:
        """The type to judge a result in: that of the inputs, unless a wider one is as good."""
        return found if self.may_widen and found is torch.float32 else given

    def load_kernel(self) -> Any:
        """The kernel object, from examples/."""
        return getattr(importlib.import_module(f"examples.{self.module}"), self.kernel)


def eager_layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return functional.layer_norm(x, weight.shape, weight, bias)


def eager_softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, 1)


def in_float64(eager: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """The same function on inputs upcast."""
    return lambda *inputs: eager(*(value.double() for value in inputs))


def exact_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Attention in float64, one batch entry at a time: all scores together would take 17 GB."""
    out = torch.empty(q.shape, dtype=torch.float64, device=q.device)
    for entry in range(q.size(0)):
        scores = q[entry].double() @ k[entry].double().transpose(-1, -2)
        weights = torch.softmax(scores / math.sqrt(q.size(-1)), -1)
        out[entry] = weights @ v[entry].double()
    return out


def add_workload(name: str, dtype: torch.dtype) -> Workload:
    """Addition of two vectors of 2^26 elements."""
    return Workload(
        name,
        "add",
        "add",
        ((1 << 26,),) * 2,
        ((1000,),) * 2,
        dtype,
        torch.add,
        in_float64(torch.add),
    )


WORKLOADS = (
    add_workload("add fp32 2^26", torch.float32),
    add_workload("add bf16 2^26", torch.bfloat16),
    Workload(
        "softmax bf16 8192x8192",
        "softmax",
        "softmax",
        ((8192, 8192),),
        ((33, 100),),
        torch.bfloat16,
        eager_softmax,
        in_float64(eager_softmax),
        lambda shape: shape[1],
    ),
    Workload(
        "layer_norm bf16 8192x8192",
        "layer_norm",
        "layer_norm_fwd",
        ((8192, 8192), (8192,), (8192,)),
        ((33, 100), (100,), (100,)),
        torch.bfloat16,
        eager_layer_norm,
        in_float64(eager_layer_norm),
        lambda shape: shape[1],
    ),
    Workload(
        "matmul bf16 4096^3",
        "matmul",
        "matmul",
        ((4096, 4096),) * 2,
        ((64, 64),) * 2,
        torch.bfloat16,
        torch.mm,
        in_float64(torch.mm),
        lambda shape: shape[1],
        flops=lambda shape: 2 * shape[0] ** 2 * shape[1],
    ),
    Workload(
        "attention bf16 4x32x4096x128",
        "attention",
        "attention",
        ((4, 32, 4096, 128),) * 3,
        ((1, 2, 64, 32),) * 3,
        torch.bfloat16,
        functional.scaled_dot_product_attention,
        exact_attention,
        # A score sums the head dimension, an output element the keys.
        lambda shape: shape[2] * shape[3],
        roundings=1,
        flops=lambda shape: 4 * shape[0] * shape[1] * shape[2] ** 2 * shape[3],
    ),
)
