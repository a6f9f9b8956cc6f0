"""A gate made by two products, `x * sigmoid(relu(x @ a) @ b)`, forward and backward.

The forward computes the narrow hidden layer and the gate of a tile of rows in one program; the
hidden layer never leaves the chip except for the copy the backward reads.
"""

from __future__ import annotations

from typing import Any

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against

Three = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@helion.kernel(static_shapes=True)
def squeeze_excite_fwd(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> Three:
    m, n = x.size()
    hidden_size = hl.specialize(a.size(1))
    acc_dtype = torch.promote_types(x.dtype, torch.float32)
    out = torch.empty_like(x)
    hidden_out = torch.empty([m, hidden_size], dtype=x.dtype, device=x.device)
    gate_out = torch.empty_like(x)
    for tile_m in hl.tile(m):
        squeezed = hl.zeros([tile_m, hidden_size], dtype=acc_dtype)
        for tile_k in hl.tile(n):
            squeezed = torch.addmm(squeezed, x[tile_m, tile_k], a[tile_k, :])
        hidden = torch.relu(squeezed).to(x.dtype)
        hidden_out[tile_m, :] = hidden
        for tile_n in hl.tile(n):
            gate = torch.sigmoid(hl.dot(hidden, b[:, tile_n], out_dtype=acc_dtype))
            gate_out[tile_m, tile_n] = gate.to(x.dtype)
            out[tile_m, tile_n] = (x[tile_m, tile_n].to(acc_dtype) * gate).to(x.dtype)
    return out, hidden_out, gate_out


@helion.kernel(static_shapes=True)
def squeeze_excite_bwd_rows(
    grad_out: torch.Tensor,
    x: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    hidden: torch.Tensor,
    gate: torch.Tensor,
) -> Three:
    """Gradients that belong to rows: of x, and of what enters both nonlinearities."""
    m, n = x.size()
    hidden_size = hl.specialize(hidden.size(1))
    acc_dtype = torch.promote_types(x.dtype, torch.float32)
    grad_x = torch.empty_like(x)
    grad_scores = torch.empty_like(x)
    grad_squeezed = torch.empty_like(hidden)
    for tile_m in hl.tile(m):
        along_hidden = hl.zeros([tile_m, hidden_size], dtype=acc_dtype)
        for tile_n in hl.tile(n):
            sigmoid = gate[tile_m, tile_n].to(acc_dtype)
            slope = sigmoid * (1 - sigmoid)
            inward = grad_out[tile_m, tile_n].to(acc_dtype) * x[tile_m, tile_n].to(acc_dtype)
            along_scores = (inward * slope).to(x.dtype)
            grad_scores[tile_m, tile_n] = along_scores
            along_hidden = torch.addmm(along_hidden, along_scores, b[:, tile_n].T)
        is_active = hidden[tile_m, :] > 0
        along_squeezed = torch.where(is_active, along_hidden, 0.0).to(x.dtype)
        grad_squeezed[tile_m, :] = along_squeezed
        for tile_k in hl.tile(n):
            direct = grad_out[tile_m, tile_k].to(acc_dtype) * gate[tile_m, tile_k].to(acc_dtype)
            through = hl.dot(along_squeezed, a[tile_k, :].T, out_dtype=acc_dtype)
            grad_x[tile_m, tile_k] = (direct + through).to(x.dtype)
    return grad_x, grad_scores, grad_squeezed


@helion.kernel(static_shapes=True)
def transposed_product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """``x.T @ y``: the gradient of a weight."""
    m, k = x.size()
    n = y.size(1)
    out = torch.empty([k, n], dtype=x.dtype, device=x.device)
    for tile_k, tile_n in hl.tile([k, n]):
        acc = hl.zeros([tile_k, tile_n], dtype=torch.promote_types(x.dtype, torch.float32))
        for tile_m in hl.tile(m):
            acc = torch.addmm(acc, x[tile_m, tile_k].T, y[tile_m, tile_n])
        out[tile_k, tile_n] = acc.to(x.dtype)
    return out


class SqueezeExcite(torch.autograd.Function):
    """``x * sigmoid(relu(x @ a) @ b)``."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Run the forward kernel and keep both layers."""
        out, hidden, gate = squeeze_excite_fwd(x, a, b)
        ctx.save_for_backward(x, a, b, hidden, gate)
        return out

    @staticmethod
    def backward(ctx: Any, grad_out: torch.Tensor) -> Three:
        """Row gradients first, then one product for each weight."""
        x, a, b, hidden, gate = ctx.saved_tensors
        grad_x, grad_scores, grad_squeezed = squeeze_excite_bwd_rows(
            grad_out, x, a, b, hidden, gate
        )
        grad_a = transposed_product(x, grad_squeezed)
        return grad_x, grad_a, transposed_product(hidden, grad_scores)


def reference(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> Three:
    hidden = torch.relu(x.double() @ a.double())
    gate = torch.sigmoid(hidden @ b.double())
    return x.double() * gate, hidden, gate


def reference_bwd_rows(
    grad_out: torch.Tensor,
    x: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    hidden: torch.Tensor,
    gate: torch.Tensor,
) -> Three:
    grad, sigmoid = grad_out.double(), gate.double()
    along_scores = grad * x.double() * sigmoid * (1 - sigmoid)
    along_squeezed = torch.where(hidden > 0, along_scores @ b.double().T, 0.0)
    return grad * sigmoid + along_squeezed @ a.double().T, along_scores, along_squeezed


def reference_transposed_product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.double().T @ y.double()


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    m, n, hidden = (1024, 1024, 64) if device == "cuda" else (160, 128, 32)
    x = torch.randn(m, n, device=device, dtype=torch.double).float().requires_grad_()
    a = (torch.randn(n, hidden, device=device) / n**0.5).requires_grad_()
    b = (torch.randn(hidden, n, device=device) / hidden**0.5).requires_grad_()
    grad_out = torch.randn(m, n, device=device)
    out = SqueezeExcite.apply(x, a, b)
    out.backward(grad_out)

    doubles = [tensor.detach().double().requires_grad_() for tensor in (x, a, b)]
    exact = reference(*doubles)[0]
    exact.backward(grad_out.double())
    # fp32 products run in tf32 on a GPU, whose mantissa is fp16's.
    rounded = [torch.float16] * 3
    forward = check_against(
        out.detach(), exact.detach(), reduction_length=n, intermediate=rounded
    ).relative_norm
    backward = [
        check_against(
            tensor.grad, wanted.grad, reduction_length=m, intermediate=rounded
        ).relative_norm
        for tensor, wanted in zip((x, a, b), doubles)
    ]
    print(
        f"squeeze_and_excitation_net: relative error forward {forward:.1e}, "
        f"backward {max(backward):.1e}"
    )


if __name__ == "__main__":
    main()
