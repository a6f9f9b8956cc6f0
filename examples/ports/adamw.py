"""AdamW in one pass: parameters and both moments are read once and updated in place.

Parameters may be narrower than the moments; all arithmetic is in fp32. The step number is a runtime
argument, so one compiled kernel serves all steps.
"""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against

Three = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@helion.kernel
def adamw(
    param: torch.Tensor,
    grad: torch.Tensor,
    mean: torch.Tensor,
    square: torch.Tensor,
    step: int,
    lr: float,
    betas: tuple[float, float],
    eps: float,
    decay: float,
) -> Three:
    """One step of AdamW on tensors of one shape; ``step`` counts from 1."""
    beta1, beta2 = betas
    correction1 = 1 - beta1**step
    correction2 = 1 - beta2**step
    flat = [x.view(-1) for x in (param, grad, mean, square)]
    for tile in hl.tile(param.numel()):
        p = flat[0][tile].to(torch.float32)
        g = flat[1][tile].to(torch.float32)
        m = flat[2][tile] * beta1 + g * (1 - beta1)
        s = flat[3][tile] * beta2 + g * g * (1 - beta2)
        change = (m / correction1) / (torch.sqrt(s / correction2) + eps)
        flat[0][tile] = (p * (1 - lr * decay) - change * lr).to(param.dtype)
        flat[2][tile] = m
        flat[3][tile] = s
    return param, mean, square


def reference(
    param: torch.Tensor,
    grad: torch.Tensor,
    mean: torch.Tensor,
    square: torch.Tensor,
    step: int,
    lr: float,
    betas: tuple[float, float],
    eps: float,
    decay: float,
) -> Three:
    p, g, m, s = (x.double() for x in (param, grad, mean, square))
    m = betas[0] * m + (1 - betas[0]) * g
    s = betas[1] * s + (1 - betas[1]) * g * g
    root = torch.sqrt(s / (1 - betas[1] ** step)) + eps
    change = m / (1 - betas[0] ** step) / root
    return p * (1 - lr * decay) - lr * change, m, s


def random_state(
    shape: tuple[int, ...], dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Parameters, gradients and moments in the middle of a training."""
    generator = torch.Generator().manual_seed(0)
    param, grad, mean = (torch.randn(shape, generator=generator) for _ in range(3))
    square = torch.rand(shape, generator=generator) + 0.1
    return param.to(dtype), grad.to(dtype), mean, square


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    shape = (4096, 4096) if device == "cuda" else (30, 50)
    state = [x.to(device) for x in random_state(shape, torch.bfloat16)]
    numbers = (7, 1e-2, (0.9, 0.999), 1e-8, 0.1)
    exact = reference(*state, *numbers)
    errors = [
        check_against(found, wanted, reduction_length=2).relative_norm
        for found, wanted in zip(adamw(*state, *numbers), exact)
    ]
    print(f"adamw: relative error of parameters {errors[0]:.1e}, of moments {max(errors[1:]):.1e}")


if __name__ == "__main__":
    main()
