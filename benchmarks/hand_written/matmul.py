"""Matrix product in hand-written Triton, for Hopper and later.

As many programs as the device has multiprocessors walk the tiles of the result; factors and result
go through TMA descriptors. Which blocks are best is found by trying, once for each shape.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

TMA_ALIGNMENT = 16
UNSET = [1, 1]
"""Block of a descriptor until a config has been chosen."""


def set_blocks(arguments: dict[str, Any]) -> None:
    """Give the descriptors the blocks of a config."""
    m, n, k = (arguments[name] for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K"))
    arguments["x"].block_shape = [m, k]
    arguments["y"].block_shape = [n, k] if arguments["IS_TRANSPOSED"] else [k, n]
    arguments["out"].block_shape = [m, n]


def config(m: int, n: int, k: int, num_stages: int, num_warps: int) -> triton.Config:
    """One choice of blocks."""
    blocks = {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}
    return triton.Config(blocks, num_stages=num_stages, num_warps=num_warps, pre_hook=set_blocks)


CONFIGS = [
    config(128, 256, 64, 3, 8),
    config(128, 128, 64, 4, 8),
    config(128, 128, 64, 4, 4),
    config(64, 128, 64, 4, 4),
    config(64, 64, 128, 4, 4),
    config(16, 64, 128, 5, 4),
]


@triton.autotune(CONFIGS, key=["m", "n", "k", "IS_TRANSPOSED"])
@triton.jit
def matmul_kernel(
    x,
    y,
    out,
    m,
    n,
    k,
    IS_TRANSPOSED: tl.constexpr,
    NUM_PROGRAMS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr = 8,
):
    tiles_m, tiles_n = tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N)
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, NUM_PROGRAMS, flatten=True):
        # Tiles of a few rows together: their columns are found in the L2 cache.
        first_m = tile // (GROUP * tiles_n) * GROUP
        within = tile % (GROUP * tiles_n)
        height = min(tiles_m - first_m, GROUP)
        row = (first_m + within % height) * BLOCK_M
        column = within // height * BLOCK_N
        acc = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
        for inner in range(0, k, BLOCK_K):
            left = x.load([row, inner])
            if IS_TRANSPOSED:
                right = y.load([column, inner]).T
            else:
                right = y.load([inner, column])
            acc = tl.dot(left, right, acc)
        out.store([row, column], acc.to(out.dtype))


def matmul(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """``x @ y``; the second factor lies in memory by rows or by columns."""
    (m, k), n = x.shape, y.size(1)
    out = torch.empty([m, n], dtype=x.dtype, device=x.device)
    is_transposed = y.stride(0) == 1 and k > 1
    tensors = (x, y.t() if is_transposed else y, out)
    check_aligned(*tensors)
    descriptors = [TensorDescriptor.from_tensor(tensor, list(UNSET)) for tensor in tensors]
    num_programs = num_multiprocessors(x.device)

    def grid(meta: dict[str, Any]) -> tuple[int]:
        tiles = triton.cdiv(m, meta["BLOCK_M"]) * triton.cdiv(n, meta["BLOCK_N"])
        return (min(num_programs, tiles),)

    matmul_kernel[grid](
        *descriptors, m, n, k, IS_TRANSPOSED=is_transposed, NUM_PROGRAMS=num_programs
    )
    return out


def check_aligned(*tensors: torch.Tensor) -> None:
    """Raise for rows that TMA cannot address."""
    for tensor in tensors:
        step = tensor.stride(0) * tensor.element_size()
        if tensor.stride(-1) != 1 or step % TMA_ALIGNMENT or tensor.data_ptr() % TMA_ALIGNMENT:
            raise ValueError(f"rows of {step} bytes: TMA needs multiples of {TMA_ALIGNMENT}")


def num_multiprocessors(device: torch.device) -> int:
    """Of a GPU; any number will do for Triton's interpreter."""
    if device.type != "cuda":
        return 3
    return torch.cuda.get_device_properties(device).multi_processor_count
