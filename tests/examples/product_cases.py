"""Matrix products of all kinds, as data."""

from __future__ import annotations

from typing import Any

import torch

from examples import (
    bf16xint16_gemm,
    broadcast_matmul,
    epilogue_subtiling,
    fp8_gemm,
    fp8_matmul,
    gather_gemv,
    int4_gemm,
    matmul,
    matmul_row_reduction,
    nvfp4_gemm,
    nvfp4_gemv,
    se_block,
    split_k_barrier,
    squeeze_and_excitation_net,
)
from tests.examples.case import Args, Case, Size, blocks, larger, last, tensors
from tilesmith.numerics.inputs import random_tensor

excite = squeeze_and_excitation_net
SHORT: tuple[Size, ...] = ((1, 1, 1), (16, 16, 32), (37, 53, 29))
EVEN: tuple[Size, ...] = ((1, 1, 2), (16, 16, 32), (37, 53, 58))
BATCHES: tuple[Size, ...] = ((1, 1, 1, 1), (2, 16, 16, 16), (3, 17, 15, 33))
SQUARES: tuple[Size, ...] = ((1, 1), (16, 16), (37, 21))
CHOICES: tuple[Size, ...] = ((1, 1), (3, 16), (5, 21))
NETS: tuple[Size, ...] = ((1, 1, 1), (16, 16, 16), (37, 53, 11))


def factors(size: Size, dtype: torch.dtype, device: str) -> Args:
    m, n, k = size
    return tensors((m, k), (k, n), dtype=dtype, device=device)


def product_with_gradient(size: Size, dtype: torch.dtype, device: str) -> Args:
    m, n, k = size
    return tensors((m, n), (m, k), (k, n), dtype=dtype, device=device)


def batch_and_matrix(size: Size, dtype: torch.dtype, device: str) -> Args:
    b, m, n, k = size
    return tensors((b, m, k), (k, n), dtype=dtype, device=device)


def floats_and_integers(size: Size, dtype: torch.dtype, device: str) -> Args:
    m, n, k = size
    (x,) = tensors((m, k), dtype=dtype, device=device)
    return x, random_tensor([k, n], torch.int16, seed=1, device=device)


def integers_and_floats(size: Size, dtype: torch.dtype, device: str) -> Args:
    m, n, k = size
    (y,) = tensors((k, n), dtype=dtype, device=device)
    return random_tensor([m, k], torch.int16, seed=1, device=device), y


def scaled_fp8(size: Size, dtype: torch.dtype, device: str) -> Args:
    m, n, k = size
    x, y = tensors((m, k), (n, k), dtype=dtype, device=device)
    (x8, x_scale), (y8, y_scale) = fp8_gemm.quantise(x), fp8_gemm.quantise(y)
    return x8, y8.t(), x_scale, y_scale


def row_scaled_fp8(size: Size, dtype: torch.dtype, device: str) -> Args:
    m, n, k = size
    x, y = tensors((m, k), (n, k), dtype=dtype, device=device)
    (x8, x_scale), (y8, y_scale) = fp8_matmul.quantise_rows(x), fp8_matmul.quantise_rows(y)
    return x8, y8.t(), x_scale, y_scale


def choices_of_matrices(size: Size, dtype: torch.dtype, device: str) -> Args:
    count, width = size
    w, x = tensors((4, width, width), (width,), dtype=dtype, device=device)
    return w, (torch.arange(count, device=device) * 3 + 1) % 4, x


def packed_weights(size: Size, dtype: torch.dtype, device: str) -> Args:
    m, n, k = size
    (x,) = tensors((m, k), dtype=dtype, device=device)
    weights = random_tensor([k, n], torch.int32, seed=1, device=device).clamp(-8, 7)
    return x, int4_gemm.pack(weights)


def packed_fp4(size: Size, dtype: torch.dtype, device: str) -> Args:
    m, n, groups = size
    shapes = ((m, groups * nvfp4_gemm.GROUP), (n, groups * nvfp4_gemm.GROUP))
    x, w = tensors(*shapes, dtype=torch.float32, device=device)
    (x4, x_scales, x_scale), (w4, w_scales, w_scale) = map(nvfp4_gemm.quantise, (x, w))
    return x4, w4, x_scales, w_scales, x_scale, w_scale


def packed_fp4_and_vector(size: Size, dtype: torch.dtype, device: str) -> Args:
    n, groups = size
    k = groups * nvfp4_gemm.GROUP
    w, scales, scale = nvfp4_gemm.quantise(*tensors((n, k), dtype=torch.float32, device=device))
    return w, scales, scale, *tensors((k,), dtype=dtype, device=device)


def residual_and_bias(size: Size, dtype: torch.dtype, device: str) -> Args:
    m, n, k = size
    return tensors((m, k), (k, n), (m, n), (n,), dtype=dtype, device=device)


def gated(size: Size, dtype: torch.dtype, device: str) -> Args:
    m, n = size
    x, w = tensors((m, n), (n, n), dtype=dtype, device=device)
    return x, w * 0.25


def gated_gradient(size: Size, dtype: torch.dtype, device: str) -> Args:
    x, w = gated(size, dtype, device)
    gate = se_block.reference(x, w)[1].to(dtype)
    return random_tensor(x.shape, dtype, seed=9, device=device), x, w, gate


def gated_weight_gradient(size: Size, dtype: torch.dtype, device: str) -> Args:
    grad_out, x, _, gate = gated_gradient(size, dtype, device)
    return grad_out, x, gate


def net(size: Size, dtype: torch.dtype, device: str) -> Args:
    m, n, hidden = size
    x, a, b = tensors((m, n), (n, hidden), (hidden, n), dtype=dtype, device=device)
    return x, a * 0.25, b * 0.25


def gate_terms(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> tuple[Any, ...]:
    """What a gate hangs on by its slope: the hidden layer, and what that sums up, times ``b``.

    The larger the numbers of the hidden layer are, the more of their rounding is seen in a gate
    that is half open; one that is shut or wide open shows nothing of it.
    """
    wide, down, up = x.double(), a.double(), b.double()
    _, hidden, gate = excite.reference(x, a, b)
    summed = torch.where(hidden > 0, hidden.square() + wide.square() @ down.square(), 0.0)
    slope = gate * (1 - gate) * (summed @ up.square()).sqrt()
    return wide.abs() * slope, None, slope


def net_gradient(size: Size, dtype: torch.dtype, device: str) -> Args:
    x, a, b = net(size, dtype, device)
    _, hidden, gate = squeeze_and_excitation_net.reference(x, a, b)
    grad_out = random_tensor(x.shape, dtype, seed=9, device=device)
    return grad_out, x, a, b, hidden.to(dtype), gate.to(dtype)


def rows_and_rows(size: Size, dtype: torch.dtype, device: str) -> Args:
    m, n, k = size
    return tensors((k, m), (k, n), dtype=dtype, device=device)


def factors_and_row(size: Size, dtype: torch.dtype, device: str) -> Args:
    m, n, k = size
    return tensors((m, k), (k, n), (n,), dtype=dtype, device=device)


BF16 = (torch.bfloat16,)
ROW_REDUCED: tuple[Size, ...] = ((1, 1, 1), (37, 21, 29))
row_reduction = matmul_row_reduction

# fmt: off
PRODUCT: tuple[Case, ...] = (
    Case("matmul_bwd", matmul.matmul_bwd, product_with_gradient, matmul.reference_bwd,
         blocks(16, 16, 16, 16, 16, 16), SHORT, larger),
    Case("matmul_rms_norm", row_reduction.matmul_rms_norm, factors_and_row,
         row_reduction.reference_rms_norm, blocks(16, 16), ROW_REDUCED, larger),
    Case("matmul_softmax", row_reduction.matmul_softmax, factors,
         row_reduction.reference_softmax, blocks(16, 16), ROW_REDUCED, larger),
    Case("matmul_l2_normalize", row_reduction.matmul_l2_normalize, factors,
         row_reduction.reference_l2_normalize, blocks(16, 16), ROW_REDUCED, larger),
    Case("matmul_logsumexp", row_reduction.matmul_logsumexp, factors,
         row_reduction.reference_logsumexp, blocks(16, 16), ROW_REDUCED, larger),
    Case("broadcast_matmul", broadcast_matmul.broadcast_matmul, batch_and_matrix,
         broadcast_matmul.reference, blocks(16, 16, 16), BATCHES, last),
    Case("bf16xint16_gemm", bf16xint16_gemm.bf16xint16_gemm, floats_and_integers,
         bf16xint16_gemm.reference, blocks(16, 16, 16), SHORT, last, dtypes=BF16),
    Case("int16xbf16_gemm", bf16xint16_gemm.int16xbf16_gemm, integers_and_floats,
         bf16xint16_gemm.reference, blocks(16, 16, 16), SHORT, last, dtypes=BF16),
    Case("int4_gemm", int4_gemm.int4_gemm, packed_weights, int4_gemm.reference,
         blocks(16, 16, 16), EVEN, last, dtypes=(torch.bfloat16, torch.float16)),
    # Hopper's fp8 tensor cores keep about 14 bits of a partial sum.
    Case("fp8_gemm", fp8_gemm.fp8_gemm, scaled_fp8, fp8_gemm.reference,
         blocks(16, 16, 32), SHORT, last, roundings=(1,), dtypes=(torch.float16,),
         missing_targets=("cuda:80",)),
    # Triton's interpreter truncates to bf16, the type of the result.
    Case("fp8_matmul", fp8_matmul.fp8_matmul, row_scaled_fp8, fp8_matmul.reference,
         blocks(16, 16, 32), SHORT, last, roundings=(1,), dtypes=(torch.float16,),
         is_interpretable=False,
         missing_targets=("cuda:80",)),
    Case("nvfp4_gemm", nvfp4_gemm.nvfp4_gemm, packed_fp4, nvfp4_gemm.reference,
         blocks(16, 16, 2), ((1, 1, 1), (37, 21, 5)), lambda size: size[2] * nvfp4_gemm.GROUP,
         dtypes=BF16, has_free_layouts=False, needs_static_shapes=True,
         missing_targets=("cuda:80",)),
    Case("nvfp4_gemv", nvfp4_gemv.nvfp4_gemv, packed_fp4_and_vector, nvfp4_gemv.reference,
         blocks(16, 2), ((1, 1), (37, 5)), lambda size: size[1] * nvfp4_gemm.GROUP,
         has_free_layouts=False, needs_static_shapes=True, missing_targets=("cuda:80",)),
    Case("split_k_barrier", split_k_barrier.split_k_barrier, factors, split_k_barrier.reference,
         blocks(16, 16, 16, 16, 16, splits=4), ((1, 1, 1), (37, 21, 53)), last,
         is_interpretable=False),
    Case("gather_gemv", gather_gemv.gather_gemv, choices_of_matrices, gather_gemv.reference,
         blocks(16, 16), CHOICES, last),
    Case("linear_gelu", epilogue_subtiling.linear_gelu, residual_and_bias,
         epilogue_subtiling.reference, blocks(16, 16, 16), SHORT, last),
    Case("linear_gelu_with_input", epilogue_subtiling.linear_gelu_with_input, residual_and_bias,
         epilogue_subtiling.reference_with_input, blocks(16, 16, 16), SHORT, last),
    Case("se_block_fwd", se_block.se_block_fwd, gated, se_block.reference, blocks(16), SQUARES,
         last),
    Case("se_block_bwd_x", se_block.se_block_bwd_x, gated_gradient, se_block.reference_bwd_x,
         blocks(16), SQUARES, last, roundings=(1,)),
    Case("se_block_bwd_w", se_block.se_block_bwd_w, gated_weight_gradient,
         se_block.reference_bwd_w, blocks(16, 16, 16), SQUARES, larger, roundings=(1,)),
    Case("squeeze_excite_fwd", excite.squeeze_excite_fwd, net, excite.reference,
         blocks(16, 16, 16), NETS, larger, roundings=(1, 0, 1), terms=gate_terms),
    Case("squeeze_excite_bwd_rows", excite.squeeze_excite_bwd_rows, net_gradient,
         excite.reference_bwd_rows, blocks(16, 16, 16), NETS, larger, roundings=(2, 0, 1)),
    Case("transposed_product", excite.transposed_product, rows_and_rows,
         excite.reference_transposed_product, blocks(16, 16, 16), SHORT, larger),
)
# fmt: on
