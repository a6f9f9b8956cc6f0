"""Matrix product with an epilogue given as a Python callable; products with gradients.

The callable is traced into the kernel. Tensors it closes over become inputs of the kernel, and it
indexes them with the tiles of the output. The backward computes both gradients in one launch: two
top-level loops that share nothing but their inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against

Epilogue = Callable[[torch.Tensor, Sequence[Any]], torch.Tensor]


@helion.kernel(static_shapes=True)
def matmul(
    x: torch.Tensor, y: torch.Tensor, epilogue: Epilogue = lambda acc, tile: acc
) -> torch.Tensor:
    m, k = x.size()
    k2, n = y.size()
    assert k == k2, f"cannot multiply [{m}, {k}] by [{k2}, {n}]"
    out = torch.empty([m, n], dtype=torch.promote_types(x.dtype, y.dtype), device=x.device)
    for tile_m, tile_n in hl.tile([m, n]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.promote_types(out.dtype, torch.float32))
        for tile_k in hl.tile(k):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, tile_n])
        out[tile_m, tile_n] = epilogue(acc, [tile_m, tile_n])
    return out


def bias_relu(bias: torch.Tensor) -> Epilogue:
    """Epilogue adding one bias per column, then clamping at zero."""
    return lambda acc, tile: torch.relu(acc + bias[tile[1]])


@helion.kernel(static_shapes=True)
def matmul_bwd(
    grad_out: torch.Tensor, x: torch.Tensor, y: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    m, k = x.size()
    n = y.size(1)
    acc_dtype = torch.promote_types(x.dtype, torch.float32)
    grad_x = torch.empty([m, k], dtype=x.dtype, device=x.device)
    grad_y = torch.empty([k, n], dtype=y.dtype, device=y.device)
    for tile_m, tile_k in hl.tile([m, k]):
        acc = hl.zeros([tile_m, tile_k], dtype=acc_dtype)
        for tile_n in hl.tile(n):
            acc = torch.addmm(acc, grad_out[tile_m, tile_n], y[tile_k, tile_n].T)
        grad_x[tile_m, tile_k] = acc
    for tile_k, tile_n in hl.tile([k, n]):
        acc = hl.zeros([tile_k, tile_n], dtype=acc_dtype)
        for tile_m in hl.tile(m):
            acc = torch.addmm(acc, x[tile_m, tile_k].T, grad_out[tile_m, tile_n])
        grad_y[tile_k, tile_n] = acc
    return grad_x, grad_y


@helion.kernel(static_shapes=True)
def addmm_bwd(
    grad_out: torch.Tensor, x: torch.Tensor, y: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gradients of both factors, and sums over some rows each of what a bias gets.

    The third loop has no products: its programs fill what the others leave idle.
    """
    m, k = x.size()
    n = y.size(1)
    wide = torch.promote_types(x.dtype, torch.float32)
    grad_x = torch.empty([m, k], dtype=x.dtype, device=x.device)
    grad_y = torch.empty([k, n], dtype=y.dtype, device=y.device)
    block_m = hl.register_block_size(m)
    parts = torch.empty([helion.cdiv(m, block_m), n], dtype=wide, device=x.device)
    for tile_m, tile_k in hl.tile([m, k]):
        acc = hl.zeros([tile_m, tile_k], dtype=wide)
        for tile_n in hl.tile(n):
            acc = torch.addmm(acc, grad_out[tile_m, tile_n], y[tile_k, tile_n].T)
        grad_x[tile_m, tile_k] = acc
    for tile_k, tile_n in hl.tile([k, n]):
        acc = hl.zeros([tile_k, tile_n], dtype=wide)
        for tile_m in hl.tile(m):
            acc = torch.addmm(acc, x[tile_m, tile_k].T, grad_out[tile_m, tile_n])
        grad_y[tile_k, tile_n] = acc
    for tile_m, tile_n in hl.tile([m, n], block_size=[block_m, None]):
        total = hl.zeros([tile_n], dtype=wide)
        for rows in hl.tile(tile_m.begin, tile_m.end):
            total = total + grad_out[rows, tile_n].to(wide).sum(0)
        parts[tile_m.id, tile_n] = total
    return grad_x, grad_y, parts


@helion.kernel(static_shapes=True)
def added_rows(parts: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The sum of a few rows."""
    n = parts.size(1)
    out = torch.empty([n], dtype=dtype, device=parts.device)
    for tile_n in hl.tile(n):
        out[tile_n] = parts[:, tile_n].sum(0)
    return out


class MatMul(torch.autograd.Function):
    """The product of two matrices."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Multiply."""
        ctx.save_for_backward(x, y)
        return matmul(x, y)

    @staticmethod
    def backward(ctx: Any, grad_out: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Both gradients in one launch."""
        return matmul_bwd(grad_out, *ctx.saved_tensors)


class AddMM(torch.autograd.Function):
    """``beta * bias + alpha * (x @ y)``, the bias a matrix or one row for all."""

    @staticmethod
    def forward(
        ctx: Any,
        bias: torch.Tensor,
        x: torch.Tensor,
        y: torch.Tensor,
        alpha: float = 1.0,
        beta: float = 1.0,
    ) -> torch.Tensor:
        """Multiply, scale and add in one kernel."""
        ctx.save_for_backward(x, y)
        ctx.bias_size, ctx.alpha, ctx.beta = bias.size(), alpha, beta
        full_bias = bias.expand(x.size(0), y.size(1))
        return matmul(x, y, lambda acc, tile: acc * alpha + full_bias[tile[0], tile[1]] * beta)

    @staticmethod
    def backward(ctx: Any, grad_out: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Gradients of the bias (summed over the rows it was used for) and of both factors."""
        if ctx.bias_size == grad_out.shape[1:]:
            grad_x, grad_y, parts = addmm_bwd(grad_out, *ctx.saved_tensors)
            grad_bias = added_rows(parts, grad_out.dtype)
        else:
            grad_x, grad_y = matmul_bwd(grad_out, *ctx.saved_tensors)
            grad_bias = grad_out.sum_to_size(ctx.bias_size)
        grads = (grad_bias, ctx.beta), (grad_x, ctx.alpha), (grad_y, ctx.alpha)
        return *(grad if scale == 1 else grad * scale for grad, scale in grads), None, None


def reference(
    x: torch.Tensor, y: torch.Tensor, epilogue: Epilogue = lambda acc, tile: acc
) -> torch.Tensor:
    everything = slice(None)
    return epilogue(x.double() @ y.double(), [everything, everything])


def reference_bwd(
    grad_out: torch.Tensor, x: torch.Tensor, y: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    grad = grad_out.double()
    return grad @ y.double().T, x.double().T @ grad


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    m, n, k = 512, 384, 256
    x = torch.randn(m, k, device=device, dtype=torch.bfloat16)
    y = torch.randn(n, k, device=device, dtype=torch.bfloat16).t()
    finish = bias_relu(torch.randn(n, device=device, dtype=torch.bfloat16))
    plain = check_against(matmul(x, y), reference(x, y), reduction_length=k)
    fused = check_against(matmul(x, y, finish), reference(x, y, finish), reduction_length=k)
    grad_out = torch.randn(m, n, device=device, dtype=torch.bfloat16)
    grads = zip(matmul_bwd(grad_out, x, y), reference_bwd(grad_out, x, y), (n, m))
    backward = [
        check_against(grad, wanted, reduction_length=length).relative_norm
        for grad, wanted, length in grads
    ]
    print(
        f"matmul: relative error {plain.relative_norm:.1e}, fused {fused.relative_norm:.1e}, "
        f"backward {max(backward):.1e}"
    )


if __name__ == "__main__":
    main()
