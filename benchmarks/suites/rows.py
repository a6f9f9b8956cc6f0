"""Reductions and normalisations along rows, and their gradients."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.cpu_workloads import eager_sum
from benchmarks.suites.arguments import (
    Size,
    first_length,
    inputs,
    normals,
    one_tensor,
    with_weight,
    with_weight_and_bias,
)
from benchmarks.suites.widening import by_parts, widened
from benchmarks.tuning_workloads import eager_rms_norm
from benchmarks.workloads import eager_layer_norm, eager_softmax
from examples import layer_norm, rms_norm, softmax
from tilesmith.bench.case import Arguments, Operator

FP32 = torch.float32
EPS = 1e-5
SUMS = ((4096, 256), (4096, 1024), (4096, 4096), (32, 1 << 20), (8192, 8192), (16384, 16384))
SOFTMAX_ROWS = (*((4096, n) for n in (256, 512, 1024, 2048, 4096, 8192, 12672)), (8192, 8192))
NORM_ROWS = (*((4096, n) for n in (1024, 1536, 2048, 4096, 5120, 8192, 15872)), (8192, 8192))
RMS_ROWS = (*((2048, 1 << power) for power in range(10, 16)), (8192, 8192))
# Gradients of weights hold whole rows of sums.
NORM_GRADIENT_ROWS = tuple((4096, n) for n in (1024, 1536, 2048, 3072, 4096, 5120, 8192))
RMS_GRADIENT_ROWS = tuple((2048, 1 << power) for power in range(10, 14))
LONG_ROWS = ((262_144, 1024), (262_144, 1536), (262_144, 2048))
SMALL_ROWS = ((33, 100), (256, 1000), (4096, 4096))


def larger_size(*arguments: Any) -> int:
    """Of rows and columns, both of which are summed over."""
    return max(arguments[1].shape)


def with_softmax(size: Size, device: torch.device, dtype: torch.dtype) -> Arguments:
    grad_out, x = normals(size, size, device=device, dtype=dtype)
    return grad_out, torch.softmax(x.float(), 1).to(dtype)


def with_moments(size: Size, device: torch.device, dtype: torch.dtype) -> Arguments:
    grad_out, x, weight = normals(size, size, size[-1:], device=device, dtype=dtype)
    variance, mean = torch.var_mean(x.float(), 1, correction=0)
    return grad_out, x, weight, mean, torch.rsqrt(variance + EPS), True


def with_inverse_rms(size: Size, device: torch.device, dtype: torch.dtype) -> Arguments:
    grad_out, x, weight = normals(size, size, size[-1:], device=device, dtype=dtype)
    mean_square = x.float().square().mean(1, keepdim=True)
    return grad_out, x, weight, torch.rsqrt(mean_square + EPS)


def eager_softmax_bwd(grad_out: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    return torch.ops.aten._softmax_backward_data(grad_out, out, 1, out.dtype)


def eager_layer_norm_bwd(
    grad_out: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    has_bias: bool,
) -> Any:
    dtype, shape = x.dtype, list(weight.shape)
    if not x.is_cuda:
        # There the moments must be of one type with the rest.
        grad_out, x, weight = grad_out.float(), x.float(), weight.float()
    grads = torch.ops.aten.native_layer_norm_backward(
        grad_out, x, shape, mean[:, None], rstd[:, None], weight, weight, [True, True, has_bias]
    )
    return tuple(grad.to(dtype) for grad in grads)


def eager_rms_norm_bwd(
    grad_out: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, inverse_rms: torch.Tensor
) -> Any:
    if x.is_cuda:
        return torch.ops.aten._fused_rms_norm_backward(
            grad_out, x, list(weight.shape), inverse_rms, weight, [True, True]
        )
    grad, normed = grad_out.float(), x.float() * inverse_rms
    scaled = grad * weight.float()
    along = (scaled * normed).mean(-1, keepdim=True)
    grad_x = (scaled - normed * along) * inverse_rms
    return grad_x.to(x.dtype), (grad * normed).sum(0).to(weight.dtype)


def norm_operators() -> tuple[Operator, ...]:
    return (
        Operator(
            "layer_norm",
            inputs=inputs(with_weight_and_bias, NORM_ROWS),
            cpu_inputs=inputs(with_weight_and_bias, SMALL_ROWS, FP32),
            kernels={"layer_norm_fwd": "examples.layer_norm:layer_norm_fwd"},
            eager=eager_layer_norm,
            others={"triton": "benchmarks.hand_written.layer_norm:layer_norm"},
            reduction_length=first_length,
        ),
        Operator(
            "layer_norm-bwd",
            inputs=inputs(with_moments, NORM_GRADIENT_ROWS),
            cpu_inputs=inputs(with_moments, SMALL_ROWS, FP32),
            kernels={"layer_norm_bwd": "examples.layer_norm:layer_norm_bwd"},
            eager=eager_layer_norm_bwd,
            exact=layer_norm.reference_bwd,
            reduction_length=larger_size,
        ),
        Operator(
            "rms_norm",
            inputs=inputs(with_weight, RMS_ROWS),
            cpu_inputs=inputs(with_weight, SMALL_ROWS, FP32),
            kernels={"rms_norm": "examples.rms_norm:rms_norm"},
            eager=eager_rms_norm,
            others={"triton": "benchmarks.hand_written.rms_norm:rms_norm"},
            reduction_length=first_length,
            # Eager PyTorch may round after each of its steps.
            roundings=1,
        ),
        Operator(
            "rms_norm-bwd",
            inputs=inputs(with_inverse_rms, RMS_GRADIENT_ROWS),
            cpu_inputs=inputs(with_inverse_rms, SMALL_ROWS, FP32),
            kernels={"rms_norm_bwd": "examples.rms_norm:rms_norm_bwd"},
            eager=eager_rms_norm_bwd,
            exact=rms_norm.reference_bwd,
            reduction_length=larger_size,
        ),
        Operator(
            "welford",
            inputs=inputs(with_weight_and_bias, LONG_ROWS, min_memory_gb=12.0),
            cpu_inputs=inputs(with_weight_and_bias, SMALL_ROWS, FP32),
            kernels={"welford": "examples.welford:welford"},
            eager=eager_layer_norm,
            exact=by_parts(widened(eager_layer_norm), 1),
            reduction_length=first_length,
        ),
    )


def operators() -> tuple[Operator, ...]:
    """Those of this family."""
    return (
        Operator(
            "sum",
            inputs=inputs(one_tensor, SUMS),
            cpu_inputs=inputs(one_tensor, SMALL_ROWS, FP32),
            kernels={
                "sum_rows": "examples.sum:sum_rows",
                "long_sum": "examples.long_sum:long_sum_manual",
            },
            eager=eager_sum,
            reduction_length=first_length,
        ),
        Operator(
            "softmax",
            inputs=inputs(one_tensor, SOFTMAX_ROWS),
            cpu_inputs=inputs(one_tensor, SMALL_ROWS, FP32),
            kernels={
                "softmax": "examples.softmax:softmax",
                "softmax_two_pass": "examples.softmax:softmax_two_pass",
            },
            eager=eager_softmax,
            others={"triton": "benchmarks.hand_written.softmax:softmax"},
            reduction_length=first_length,
        ),
        Operator(
            "softmax-bwd",
            inputs=inputs(with_softmax, SOFTMAX_ROWS),
            cpu_inputs=inputs(with_softmax, SMALL_ROWS, FP32),
            kernels={"softmax_bwd": "examples.softmax:softmax_bwd"},
            eager=eager_softmax_bwd,
            exact=softmax.reference_bwd,
            reduction_length=first_length,
        ),
        *norm_operators(),
    )
