"""Founding cases 2 and 3: dot compress, and products whose rows are reduced.

Sizes are (batch, positions, channels, compressed channels), and (m, k, n) of products.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from benchmarks.suites.arguments import Size, inputs, normal, of_shapes
from benchmarks.suites.products import product_flops
from benchmarks.suites.widening import by_parts
from benchmarks.tuning_workloads import eager_product_norm
from examples import dot_compress, matmul_layernorm, matmul_row_reduction
from tilesmith.bench.case import Arguments, Input, Operator

Pair = tuple[torch.Tensor, torch.Tensor]
FP32, BF16 = torch.float32, torch.bfloat16
LAYERS = ((64, 1024, 256, 64), (256, 3219, 256, 64), (1152, 3219, 256, 64))
SMALL_LAYERS = ((2, 37, 32, 16), (8, 200, 64, 32), (16, 512, 128, 64))
SMALL_PRODUCTS = ((33, 64, 128), (256, 128, 256), (4096, 512, 512))
ROWS = 131_072
CELLS: dict[str, tuple[tuple[Size, torch.dtype], ...]] = {
    "layernorm": (
        ((512, 512, 512), BF16),
        ((1024, 1024, 1024), BF16),
        ((1024, 1024, 1024), FP32),
        ((2048, 2048, 2048), FP32),
        ((ROWS, 512, 512), BF16),
        ((ROWS, 512, 512), FP32),
        ((ROWS, 512, 2048), BF16),
        ((ROWS, 512, 4096), BF16),
        ((ROWS, 4096, 2048), BF16),
    ),
    "rms_norm": (
        ((1024, 1024, 1024), BF16),
        ((ROWS, 512, 4096), BF16),
        ((ROWS, 8192, 2048), BF16),
    ),
    "softmax": (
        ((1024, 1024, 1024), FP32),
        ((ROWS, 512, 2048), FP32),
        ((ROWS, 2048, 2048), BF16),
    ),
    "l2_normalize": (
        ((2048, 2048, 2048), BF16),
        ((ROWS, 512, 4096), BF16),
        ((ROWS, 6144, 1024), BF16),
    ),
    "logsumexp": (
        ((1024, 1024, 1024), BF16),
        ((ROWS, 512, 4096), BF16),
        ((ROWS, 3072, 2048), BF16),
    ),
}
"""The table of founding case 3, each kernel's largest last."""

layers = of_shapes(lambda size: (size[:3], (*size[:2], size[3])))


def layer_gradients(size: Size, device: torch.device, dtype: torch.dtype) -> Arguments:
    x, y = layers(size, device, dtype)
    xty = (x.float().transpose(1, 2) @ y.float()).to(dtype)
    return normal(tuple(y.shape), device, dtype, seed=2), x, y, xty


def eager_dot_compress(x: torch.Tensor, y: torch.Tensor) -> Pair:
    xty = x.transpose(1, 2) @ y
    return x @ xty, xty


def eager_dot_compress_bwd(
    grad_out: torch.Tensor, x: torch.Tensor, y: torch.Tensor, xty: torch.Tensor
) -> Pair:
    grad_xty = x.transpose(1, 2) @ grad_out
    return grad_out @ xty.transpose(1, 2) + y @ grad_xty.transpose(1, 2), x @ grad_xty


def exact_dot_compress_bwd(*arguments: torch.Tensor) -> Pair:
    """In float64, some batches at a time."""
    found = by_parts(two_gradients, 4, lambda grad_out, x, *others: x.numel())
    return found(*arguments)


def two_gradients(*arguments: Any) -> Pair:
    grad_x, grad_y, _ = dot_compress.reference_bwd(*arguments)
    return grad_x, grad_y


def compress_flops(x: torch.Tensor, y: torch.Tensor) -> float:
    return 4.0 * x.numel() * y.size(-1)


def compress_length(x: torch.Tensor, *others: Any) -> int:
    return x.size(1) * x.size(2)


def compress_operators() -> tuple[Operator, ...]:
    return (
        Operator(
            "dot_compress",
            inputs=inputs(layers, LAYERS, min_memory_gb=24.0),
            cpu_inputs=inputs(layers, SMALL_LAYERS, FP32),
            kernels={"dot_compress_fwd": "examples.dot_compress:dot_compress_fwd"},
            eager=eager_dot_compress,
            exact=by_parts(dot_compress.reference, 2),
            flops=compress_flops,
            reduction_length=compress_length,
            roundings=1,
            num_products=2,
        ),
        Operator(
            "dot_compress-bwd",
            inputs=inputs(layer_gradients, LAYERS, min_memory_gb=32.0),
            cpu_inputs=inputs(layer_gradients, SMALL_LAYERS, FP32),
            kernels={"dot_compress_bwd": "examples.dot_compress:dot_compress_bwd"},
            eager=eager_dot_compress_bwd,
            exact=exact_dot_compress_bwd,
            flops=lambda grad_out, x, *others: 8.0 * x.numel() * grad_out.size(-1),
            reduction_length=lambda grad_out, x, *others: compress_length(x),
            # The compressed gradient, and both parts of the gradient of x.
            roundings=3,
            num_products=2,
        ),
    )


def cells(name: str, make: Any) -> tuple[Input, ...]:
    """The inputs of one kernel of the table."""
    return tuple(
        one
        for size, dtype in CELLS[name]
        for one in inputs(
            make, (size,), dtype, min_memory_gb=24.0 if size[0] == ROWS else 0.0, is_marked=True
        )
    )


def products(num_rows: int) -> Callable[[Size, torch.device, torch.dtype], Arguments]:
    """Two factors whose product has elements near one, and some rows of weights."""

    def make(size: Size, device: torch.device, dtype: torch.dtype) -> Arguments:
        m, k, n = size
        x = normal((m, k), device, dtype)
        y = normal((k, n), device, dtype, seed=1, scale=k**-0.5)
        return x, y, *(normal((n,), device, dtype, seed=2 + row) for row in range(num_rows))

    return make


def eager_rms(x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return functional.rms_norm(x @ y, weight.shape, weight, 1e-5)


def eager_softmax(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x @ y, -1)


def eager_l2_normalize(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return functional.normalize(x @ y, dim=-1)


def eager_logsumexp(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.logsumexp(x @ y, -1)


def no_powers(*arguments: torch.Tensor) -> int:
    return 0


def row_operator(
    name: str,
    num_rows: int,
    module: str,
    eager: Any,
    reference: Any,
    exponents: Callable[..., int] = no_powers,
) -> Operator:
    make = products(num_rows)
    kernel = f"matmul_{name}"
    return Operator(
        kernel,
        inputs=cells(name, make),
        board=range(len(CELLS[name])),
        cpu_inputs=inputs(make, SMALL_PRODUCTS, FP32),
        kernels={kernel: f"examples.{module}:{kernel}"},
        eager=eager,
        # Of the second factor and the weights every part needs all.
        exact=by_parts(reference, 1, lambda x, y, *others: x.size(0) * max(y.shape)),
        flops=product_flops,
        reduction_length=lambda x, y, *others: max(y.shape),
        # Eager rounds the product to its type before the row is reduced; the kernels do not.
        roundings=2,
        exponents=exponents,
        num_products=1,
    )


def operators() -> tuple[Operator, ...]:
    """Those of both cases."""
    rows = matmul_row_reduction
    module = "matmul_row_reduction"
    return (
        *compress_operators(),
        row_operator(
            "layernorm", 2, "matmul_layernorm", eager_product_norm, matmul_layernorm.reference
        ),
        row_operator("rms_norm", 1, module, eager_rms, rows.reference_rms_norm),
        row_operator(
            "softmax",
            0,
            module,
            eager_softmax,
            rows.reference_softmax,
            exponents=lambda x, y: x.size(1),
        ),
        row_operator("l2_normalize", 0, module, eager_l2_normalize, rows.reference_l2_normalize),
        row_operator("logsumexp", 0, module, eager_logsumexp, rows.reference_logsumexp),
    )
