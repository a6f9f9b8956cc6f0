"""bf16 times int4: two weights in each byte, unpacked and interleaved inside the kernel.

`packed[i, j]` holds weight row `2 i` in its low half and row `2 i + 1` in its high half, both
signed. A tile of the contracted axis reads half as many bytes, splits them by shifts and joins the
halves into rows again; no unpacked copy of the weights exists.
"""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against


@helion.kernel(static_shapes=True)
def int4_gemm(x: torch.Tensor, packed: torch.Tensor) -> torch.Tensor:
    m, k = x.size()
    half_k, n = packed.size()
    assert k == 2 * half_k, "two weights are packed into each byte"
    out = torch.empty([m, n], dtype=x.dtype, device=x.device)
    for tile_m, tile_n in hl.tile([m, n]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(half_k):
            both = packed[tile_k, tile_n]
            # Shifting left, then right by an arithmetic shift, extends the sign of the low half.
            low = (both << 4) >> 4
            high = both >> 4
            rows = torch.stack([low, high], dim=1).reshape(tile_k.block_size * 2, tile_n.block_size)
            columns = x[tile_m, tile_k.begin * 2 : tile_k.begin * 2 + tile_k.block_size * 2]
            acc = hl.dot(columns, rows.to(x.dtype), acc=acc)
        out[tile_m, tile_n] = acc.to(x.dtype)
    return out


def pack(weights: torch.Tensor) -> torch.Tensor:
    """Integers in [-8, 8) as pairs in int8, rows 2 i and 2 i + 1 together."""
    low, high = weights[0::2].to(torch.int8), weights[1::2].to(torch.int8)
    return (low & 0xF) | (high << 4)


def unpack(packed: torch.Tensor) -> torch.Tensor:
    """The integers that were packed."""
    low, high = (packed << 4) >> 4, packed >> 4
    return torch.stack([low, high], 1).reshape(-1, packed.size(1))


def reference(x: torch.Tensor, packed: torch.Tensor) -> torch.Tensor:
    return x.double() @ unpack(packed).double()


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    m, n, k = (512, 4096, 4096) if device == "cuda" else (64, 192, 256)
    x = torch.randn(m, k, device=device, dtype=torch.bfloat16)
    packed = pack(torch.randint(-8, 8, [k, n], device=device))
    report = check_against(int4_gemm(x, packed), reference(x, packed), reduction_length=k)
    print(f"int4_gemm: relative error {report.relative_norm:.1e}")


if __name__ == "__main__":
    main()
