"""Layer normalisation in hand-written Triton: a program holds one row."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from benchmarks.hand_written.row_launch import launch_rows


@triton.jit
def layer_norm_kernel(x, weight, bias, out, row_stride, columns, eps, BLOCK: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * row_stride
    column = tl.arange(0, BLOCK)
    is_inside = column < columns
    row = tl.load(x + first + column, mask=is_inside, other=0.0).to(tl.float32)
    mean = tl.sum(row, 0) / columns
    centred = tl.where(is_inside, row - mean, 0.0)
    inverse = tl.rsqrt(tl.sum(centred * centred, 0) / columns + eps)
    scale = tl.load(weight + column, mask=is_inside).to(tl.float32)
    shift = tl.load(bias + column, mask=is_inside).to(tl.float32)
    normed = centred * inverse * scale + shift
    tl.store(out + first + column, normed.to(out.dtype.element_ty), mask=is_inside)


def layer_norm(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5
) -> torch.Tensor:
    """Layer normalisation of the rows of a contiguous matrix."""
    out = torch.empty_like(x)
    launch_rows(layer_norm_kernel, x, weight, bias, out, x.stride(0), x.size(1), eps)
    return out
