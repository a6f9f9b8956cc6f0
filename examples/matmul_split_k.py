"""Matrix product with the contracted dimension split over programs.

How many ways to split is a tunable of the kernel's own. Every slice adds its part into the output
with an atomic; the one that holds k = 0 applies the epilogue, which must be additive (a bias).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.autotuner import PowerOfTwoFragment
from tilesmith.numerics.compare import check_against

Epilogue = Callable[[torch.Tensor, Sequence[Any]], torch.Tensor]


@helion.kernel(static_shapes=True)
def matmul_split_k(
    x: torch.Tensor, y: torch.Tensor, epilogue: Epilogue = lambda acc, tile: acc
) -> torch.Tensor:
    m, k = x.size()
    k2, n = y.size()
    assert k == k2, f"cannot multiply [{m}, {k}] by [{k2}, {n}]"
    out = torch.zeros([m, n], dtype=torch.promote_types(x.dtype, y.dtype), device=x.device)
    split_k = hl.register_tunable("split_k", PowerOfTwoFragment(1, 256))
    k_block = helion.next_power_of_2(helion.cdiv(k, split_k))
    for tile_m, tile_n, outer_k in hl.tile([m, n, k], block_size=[None, None, k_block]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for inner_k in hl.tile(outer_k.begin, outer_k.end):
            acc = torch.addmm(acc, x[tile_m, inner_k], y[inner_k, tile_n])
        if outer_k.begin == 0:
            acc = epilogue(acc, [tile_m, tile_n])
        hl.atomic_add(out, [tile_m, tile_n], acc)
    return out


def add_bias(bias: torch.Tensor) -> Epilogue:
    """Epilogue adding one bias per column."""
    return lambda acc, tile: acc + bias[tile[1]]


def reference(
    x: torch.Tensor, y: torch.Tensor, epilogue: Epilogue = lambda acc, tile: acc
) -> torch.Tensor:
    everything = slice(None)
    return epilogue(x.double() @ y.double(), [everything, everything])


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    m, n, k = 64, 64, 8192
    x = torch.randn(m, k, device=device)
    y = torch.randn(k, n, device=device)
    finish = add_bias(torch.randn(n, device=device))
    plain = check_against(matmul_split_k(x, y), reference(x, y), reduction_length=k)
    fused = check_against(matmul_split_k(x, y, finish), reference(x, y, finish), reduction_length=k)
    print(
        f"matmul_split_k: relative error {plain.relative_norm:.1e}, "
        f"with bias {fused.relative_norm:.1e}"
    )


if __name__ == "__main__":
    main()
