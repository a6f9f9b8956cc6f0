"""Matrix products of one float type: the GEMM list of founding case 1, biases, groups, choices.

Sizes are (m, k, n) of an m x k matrix times a k x n one.
"""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.suites.arguments import (
    Size,
    inputs,
    integers,
    normal,
    normals,
    num_bytes_of,
    of_shapes,
    random_offsets,
)
from benchmarks.suites.widening import widened
from examples import gather_gemv, grouped_gemm, matmul
from tilesmith.bench.case import Arguments, Operator

Three = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
FP32, FP16 = torch.float32, torch.float16
SIDES = (256, 384, 512, 640, 768, 896, 1024, 1152, 1280, 1536, 1792, 2048, 2560, 3072, 3584, 4096)
OBLONG = (
    (1, 4096, 4096),
    (16, 4096, 4096),
    (64, 8192, 8192),
    (256, 65_536, 256),
    (512, 131_072, 512),
    (1024, 8192, 1280),
    (1024, 1024, 8192),
    (2048, 8192, 7168),
    (131_072, 512, 512),
    (4096, 3584, 8192),
    (16_384, 8192, 1280),
    (16_384, 1024, 8192),
    (8192, 8192, 7168),
    (16_384, 3584, 8192),
    (8192, 8192, 8192),
)
GEMMS = (*((side,) * 3 for side in SIDES), *OBLONG)
SMALL_GEMMS = ((64, 64, 64), (128, 96, 160), (256, 256, 256), (1024, 1024, 1024))
BACKWARD_GEMMS = (
    *((side,) * 3 for side in (256, 512, 1024, 2048)),
    (8192, 1024, 4096),
    (4096,) * 3,
)
# Rows of ragged batches times the layers of a recommendation model.
BIASED = (
    (20_120, 512, 512),
    (34_579, 512, 512),
    (20_120, 512, 1536),
    (34_579, 512, 1536),
    (35_916, 1536, 512),
    (16_384, 4096, 4096),
)
# Groups, the longest of them, inner size, columns.
GROUPS = (
    (4, 1024, 1024, 1024),
    (8, 1024, 2048, 2048),
    (16, 1024, 4096, 4096),
    (32, 2048, 4096, 4096),
)
SMALL_GROUPS = ((3, 20, 32, 48), (6, 64, 128, 96), (8, 256, 512, 512))
# Matrices, choices, width.
CHOICES = ((8, 2, 1024), (8, 2, 2048), (8, 2, 4096), (8, 2, 8192), (8, 2, 14_336))


# Matrices, rows, inner size, columns.
BATCHES = ((16, 512, 512, 512), (128, 256, 64, 256), (64, 1024, 128, 1024))


def transposed_factors(size: Size, device: torch.device, dtype: torch.dtype) -> Arguments:
    """The second factor arrives transposed."""
    m, k, n = size
    x, y = normals((m, k), (n, k), device=device, dtype=dtype)
    return x, y.t()


factors = of_shapes(lambda size: (size[:2], size[1:]))
product_gradients = of_shapes(lambda size: ((size[0], size[2]), size[:2], size[1:]))
batched_factors = of_shapes(lambda size: (size[:3], (size[0], size[2], size[3])))
biased_factors = of_shapes(lambda size: (size[2:], size[:2], size[1:]))


def product_flops(x: torch.Tensor, y: torch.Tensor, *others: Any) -> float:
    return 2.0 * x.numel() * y.size(1)


def gradient_flops(grad_out: torch.Tensor, x: torch.Tensor, *others: Any) -> float:
    return 4.0 * x.numel() * grad_out.size(1)


def inner_size(x: torch.Tensor, *others: Any) -> int:
    return x.size(1)


def larger_outer_size(grad_out: torch.Tensor, *others: Any) -> int:
    """What the gradients of both factors sum over."""
    return max(grad_out.shape)


def eager_matmul_bwd(grad_out: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> Any:
    return grad_out @ y.T, x.T @ grad_out


def addmm(bias: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Our product with the bias in its epilogue."""
    return matmul.matmul(x, y, lambda acc, tile: acc + bias[tile[1]])


def addmm_bwd(grad_out: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> Three:
    """Gradients of both factors and of the bias, as our autograd function has them."""
    grad_x, grad_y, parts = matmul.addmm_bwd(grad_out, x, y)
    return grad_x, grad_y, matmul.added_rows(parts, grad_out.dtype)


def eager_addmm_bwd(grad_out: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> Three:
    return grad_out @ y.T, x.T @ grad_out, grad_out.sum(0)


def groups(size: Size, device: torch.device, dtype: torch.dtype) -> Arguments:
    count, longest, k, n = size
    offsets = random_offsets(count, longest)
    packed, b = normals((int(offsets[-1]), k), (k, n), device=device, dtype=dtype)
    return packed, b, offsets.to(device, torch.int32)


def eager_grouped_gemm(
    packed: torch.Tensor, b: torch.Tensor, offsets: torch.Tensor
) -> torch.Tensor:
    """One product: all groups share a matrix, so this is the best PyTorch can do."""
    return packed @ b


def choices(size: Size, device: torch.device, dtype: torch.dtype) -> Arguments:
    experts, count, width = size
    stack = normal((experts, width, width), device, dtype)
    return stack, integers(experts, (count,), device), normal((width,), device, dtype, seed=1)


def eager_gather_gemv(w: torch.Tensor, chosen: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return w[chosen] @ x


def chosen_bytes(
    stack: torch.Tensor, chosen: torch.Tensor, x: torch.Tensor, result: torch.Tensor
) -> float:
    """Of the stack only the matrices chosen are read."""
    return len(chosen) * num_bytes_of(stack[0]) + num_bytes_of(x, result)


def gemm_operators() -> tuple[Operator, ...]:
    """Founding case 1, the same with gradients, and the products of the tuning benchmark."""
    return (
        Operator(
            "gemm",
            inputs=inputs(transposed_factors, GEMMS, FP16),
            cpu_inputs=inputs(transposed_factors, SMALL_GEMMS, FP32),
            kernels={
                "matmul": "examples.matmul:matmul",
                "matmul_split_k": "examples.matmul_split_k:matmul_split_k",
            },
            eager=torch.mm,
            others={"triton": "benchmarks.hand_written.matmul:matmul"},
            flops=product_flops,
            reduction_length=inner_size,
            # A sum of up to 256 parts rounds with each: a random walk.
            kernel_roundings={"matmul_split_k": 4},
            num_products=1,
        ),
        Operator(
            "gemm-bwd",
            inputs=inputs(product_gradients, BACKWARD_GEMMS),
            cpu_inputs=inputs(product_gradients, SMALL_GEMMS, FP32),
            kernels={"matmul_bwd": "examples.matmul:matmul_bwd"},
            eager=eager_matmul_bwd,
            exact=matmul.reference_bwd,
            flops=gradient_flops,
            reduction_length=larger_outer_size,
            num_products=1,
        ),
        Operator(
            "matmul",
            inputs=inputs(factors, ((16, 4096, 4096), (2048, 4096, 1024), (4096, 4096, 4096))),
            cpu_inputs=inputs(factors, ((64, 64, 64), (16, 1024, 1024), (1024, 1024, 1024)), FP32),
            kernels={"matmul": "examples.matmul:matmul"},
            eager=torch.mm,
            others={"triton": "benchmarks.hand_written.matmul:matmul"},
            flops=product_flops,
            reduction_length=inner_size,
            num_products=1,
        ),
    )


def addmm_operators() -> tuple[Operator, ...]:
    home = "benchmarks.suites.products"
    return (
        Operator(
            "addmm",
            inputs=inputs(biased_factors, BIASED),
            cpu_inputs=inputs(biased_factors, SMALL_GEMMS, FP32),
            kernels={"addmm": f"{home}:addmm"},
            eager=torch.addmm,
            flops=lambda bias, x, y: product_flops(x, y),
            reduction_length=lambda bias, x, y: x.size(1),
            num_products=1,
        ),
        Operator(
            "addmm-bwd",
            inputs=inputs(product_gradients, BIASED),
            cpu_inputs=inputs(product_gradients, SMALL_GEMMS, FP32),
            kernels={"addmm_bwd": f"{home}:addmm_bwd"},
            eager=eager_addmm_bwd,
            flops=gradient_flops,
            reduction_length=larger_outer_size,
            num_products=1,
        ),
    )


def operators() -> tuple[Operator, ...]:
    """Those of this family."""
    return (
        *gemm_operators(),
        *addmm_operators(),
        Operator(
            "grouped_gemm",
            inputs=inputs(groups, GROUPS),
            cpu_inputs=inputs(groups, SMALL_GROUPS, FP32),
            kernels={
                "grouped_gemm": "examples.grouped_gemm:grouped_gemm",
                "persistent": "examples.grouped_gemm:grouped_gemm_persistent",
            },
            eager=eager_grouped_gemm,
            exact=grouped_gemm.reference,
            flops=product_flops,
            reduction_length=inner_size,
            num_products=1,
        ),
        Operator(
            "gather_gemv",
            inputs=inputs(choices, CHOICES),
            cpu_inputs=inputs(choices, ((4, 2, 64), (8, 2, 160), (8, 2, 2048)), FP32),
            kernels={"gather_gemv": "examples.gather_gemv:gather_gemv"},
            eager=eager_gather_gemv,
            exact=gather_gemv.reference,
            num_bytes=chosen_bytes,
            reduction_length=lambda w, chosen, x: x.size(0),
            num_products=1,
        ),
        Operator(
            "bmm",
            inputs=inputs(batched_factors, BATCHES),
            cpu_inputs=inputs(
                batched_factors, ((2, 33, 64, 48), (4, 128, 128, 128), (16, 256, 64, 256)), FP32
            ),
            kernels={"bmm": "examples.bmm:bmm"},
            eager=torch.bmm,
            exact=widened(torch.bmm),
            flops=lambda x, y: 2.0 * x.numel() * y.size(2),
            reduction_length=lambda x, y: x.size(2),
            num_products=1,
        ),
    )
