"""Matrix products with fp8, int4 and int16 operands.

Sizes are (m, k, n) of an m x k matrix times a k x n one.
"""

from __future__ import annotations

import torch

from benchmarks.suites.arguments import Size, inputs, integers, normal, normals
from benchmarks.suites.products import inner_size, product_flops
from examples import bf16xint16_gemm, fp8_gemm, int4_gemm
from tilesmith.bench.case import Arguments, Operator

FP32, FP16, BF16 = torch.float32, torch.float16, torch.bfloat16
FP8_SIZES = (
    *((side,) * 3 for side in (1024, 2048, 4096, 8192)),
    (16_384, 8192, 1280),
    (16_384, 8192, 7168),
)
# Tokens times the layers of a 70-billion-parameter model, from decoding to prefilling.
PACKED_SIZES = (
    (1, 8192, 8192),
    (16, 8192, 8192),
    (64, 8192, 1280),
    (256, 8192, 7168),
    (1024, 3584, 8192),
    (4096, 8192, 7168),
)
INTEGER_SIZES = ((1024, 1024, 1280), (4096, 1280, 1024), (16_384, 1024, 1280), (65_536, 1280, 1024))
SMALL = ((16, 32, 48), (64, 256, 192), (64, 1024, 1024))


def scaled_fp8(size: Size, device: torch.device, dtype: torch.dtype) -> Arguments:
    m, k, n = size
    x, y = normals((m, k), (n, k), device=device, dtype=dtype)
    (x8, x_scale), (y8, y_scale) = fp8_gemm.quantise(x), fp8_gemm.quantise(y)
    return x8, y8.t(), x_scale, y_scale


def eager_fp8_gemm(
    x: torch.Tensor, y: torch.Tensor, scale_x: torch.Tensor, scale_y: torch.Tensor
) -> torch.Tensor:
    return torch._scaled_mm(x, y, scale_x, scale_y, out_dtype=FP16, use_fast_accum=x.is_cuda)


def fp8_steps(x: torch.Tensor, *others: torch.Tensor) -> int:
    """Hopper's fp8 tensor cores keep 14 bits of a sum at each of its K / 32 steps."""
    return -(-x.size(1) // 32)


def packed_weights(size: Size, device: torch.device, dtype: torch.dtype) -> Arguments:
    m, k, n = size
    weights = integers(16, (k, n), device) - 8
    return normal((m, k), device, dtype), int4_gemm.pack(weights)


def eager_int4_gemm(x: torch.Tensor, packed: torch.Tensor) -> torch.Tensor:
    return x @ int4_gemm.unpack(packed).to(x.dtype)


def integer_weights(size: Size, device: torch.device, dtype: torch.dtype) -> Arguments:
    m, k, n = size
    weights = integers(1 << 16, (k, n), device) - (1 << 15)
    return normal((m, k), device, dtype), weights.to(torch.int16)


def eager_bf16xint16_gemm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x @ w.to(x.dtype)


def operators() -> tuple[Operator, ...]:
    """Those of this family."""
    return (
        Operator(
            "fp8_gemm",
            inputs=inputs(scaled_fp8, FP8_SIZES, FP16),
            cpu_inputs=inputs(scaled_fp8, SMALL, FP16),
            kernels={"fp8_gemm": "examples.fp8_gemm:fp8_gemm"},
            eager=eager_fp8_gemm,
            exact=fp8_gemm.reference,
            flops=product_flops,
            reduction_length=inner_size,
            cut_steps=fp8_steps,
            dtypes=(FP16,),
        ),
        Operator(
            "int4_gemm",
            inputs=inputs(packed_weights, PACKED_SIZES),
            cpu_inputs=inputs(packed_weights, SMALL, FP32),
            kernels={"int4_gemm": "examples.int4_gemm:int4_gemm"},
            eager=eager_int4_gemm,
            exact=int4_gemm.reference,
            flops=product_flops,
            reduction_length=inner_size,
            num_products=1,
        ),
        Operator(
            "bf16xint16_gemm",
            inputs=inputs(integer_weights, INTEGER_SIZES),
            cpu_inputs=inputs(integer_weights, SMALL, BF16),
            kernels={"bf16xint16_gemm": "examples.bf16xint16_gemm:bf16xint16_gemm"},
            eager=eager_bf16xint16_gemm,
            # The integers are rounded to bf16, as the operator is defined.
            exact=bf16xint16_gemm.reference,
            flops=product_flops,
            reduction_length=inner_size,
            dtypes=(BF16,),
        ),
    )
