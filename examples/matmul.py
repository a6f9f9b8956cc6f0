"""Matrix product with an epilogue given as a Python callable.

The callable is traced into the kernel. Tensors it closes over become inputs of the kernel, and it
indexes them with the tiles of the output.
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
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(k):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, tile_n])
        out[tile_m, tile_n] = epilogue(acc, [tile_m, tile_n])
    return out


def bias_relu(bias: torch.Tensor) -> Epilogue:
    """Epilogue adding one bias per column, then clamping at zero."""
    return lambda acc, tile: torch.relu(acc + bias[tile[1]])


def reference(
    x: torch.Tensor, y: torch.Tensor, epilogue: Epilogue = lambda acc, tile: acc
) -> torch.Tensor:
    everything = slice(None)
    return epilogue(x.double() @ y.double(), [everything, everything])


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    m, n, k = 512, 384, 256
    x = torch.randn(m, k, device=device, dtype=torch.bfloat16)
    y = torch.randn(n, k, device=device, dtype=torch.bfloat16).t()
    finish = bias_relu(torch.randn(n, device=device, dtype=torch.bfloat16))
    plain = check_against(matmul(x, y), reference(x, y), reduction_length=k)
    fused = check_against(matmul(x, y, finish), reference(x, y, finish), reduction_length=k)
    print(f"matmul: relative error {plain.relative_norm:.1e}, fused {fused.relative_norm:.1e}")


if __name__ == "__main__":
    main()
