"""Products of groups of rows, packed one after the other, by one matrix.

Two ways to share out the work. `grouped_gemm` says what belongs to a group, in loops that end where
the group ends; which program computes which tile is left to the compiler. In
`grouped_gemm_persistent` the source says it: one worker for each multiprocessor, and every worker
walks the tiles of all groups in turn.
"""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against


@helion.kernel(static_shapes=False)
def grouped_gemm(packed: torch.Tensor, b: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    total = packed.size(0)
    # Rows come and go, the matrix stays: code is made for its sizes.
    k, n = hl.specialize(b.size())
    groups = offsets.size(0) - 1
    out = torch.empty([total, n], dtype=packed.dtype, device=packed.device)
    hl.specialize((packed.stride(0), b.stride(0)))
    for group in hl.grid(groups):
        begin, end = offsets[group], offsets[group + 1]
        if end > begin:
            for tile_m, tile_n in hl.tile([begin, 0], [end, n]):
                acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
                for tile_k in hl.tile(k):
                    acc = torch.addmm(acc, packed[tile_m, tile_k], b[tile_k, tile_n])
                out[tile_m, tile_n] = acc.to(packed.dtype)
    return out


@helion.kernel(static_shapes=False)
def grouped_gemm_persistent(
    packed: torch.Tensor, b: torch.Tensor, offsets: torch.Tensor
) -> torch.Tensor:
    total, k = packed.size()
    n = b.size(1)
    groups = offsets.size(0) - 1
    out = torch.empty([total, n], dtype=packed.dtype, device=packed.device)
    workers = helion.runtime.get_num_sm(packed.device)
    block_m = hl.register_block_size(32, 128)
    block_n = hl.register_block_size(32, 128)
    for worker in hl.grid(workers):
        for group in hl.grid(groups):
            begin, end = offsets[group], offsets[group + 1]
            rows = end - begin
            if rows > 0:
                tiles_m = (rows + block_m - 1) // block_m
                tiles_n = helion.cdiv(n, block_n)
                for tile in hl.grid(worker, tiles_m * tiles_n, step=workers):
                    row = begin + (tile % tiles_m) * block_m + hl.arange(block_m)
                    column = (tile // tiles_m) * block_n + hl.arange(block_n)
                    has_row, has_column = row < end, column < n
                    acc = hl.zeros([block_m, block_n], dtype=torch.float32)
                    for tile_k in hl.tile(k):
                        left = hl.load(packed, [row, tile_k], extra_mask=has_row[:, None])
                        right = hl.load(b, [tile_k, column], extra_mask=has_column[None, :])
                        acc = torch.addmm(acc, left, right)
                    hl.store(
                        out,
                        [row, column],
                        acc.to(packed.dtype),
                        extra_mask=has_row[:, None] & has_column[None, :],
                    )
    return out


def reference(packed: torch.Tensor, b: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """All groups share one matrix, so the groups do not show in the result."""
    return packed.double() @ b.double()


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    sizes, k, n = [64, 0, 96, 37], 256, 128
    offsets = torch.tensor([0, *sizes], device=device).cumsum(0).to(torch.int32)
    packed = torch.randn(sum(sizes), k, device=device, dtype=torch.bfloat16)
    b = torch.randn(k, n, device=device, dtype=torch.bfloat16)
    args = (packed, b, offsets)
    plain, persistent = (
        check_against(kernel(*args), reference(*args), reduction_length=k).relative_norm
        for kernel in (grouped_gemm, grouped_gemm_persistent)
    )
    print(f"grouped_gemm: relative error {plain:.1e}, persistent {persistent:.1e}")


if __name__ == "__main__":
    main()
