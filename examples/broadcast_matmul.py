"""A batch of matrices times one matrix: the host folds the batch into the rows.

One view on the host turns `[b, m, k] x [k, n]` into a plain product with `b * m` rows, so a tile of
rows may span matrices and no lane is lost at their borders.
"""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against


@helion.kernel(static_shapes=True)
def broadcast_matmul(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    b, m, k = x.size()
    k2, n = y.size()
    assert k == k2, f"cannot multiply [{b}, {m}, {k}] by [{k2}, {n}]"
    rows = x.reshape([b * m, k])
    out = torch.empty([b * m, n], dtype=torch.promote_types(x.dtype, y.dtype), device=x.device)
    for tile_m, tile_n in hl.tile([b * m, n]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(k):
            acc = torch.addmm(acc, rows[tile_m, tile_k], y[tile_k, tile_n])
        out[tile_m, tile_n] = acc
    return out.view(b, m, n)


def reference(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.double() @ y.double()


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    b, m, n, k = (16, 512, 1024, 768) if device == "cuda" else (4, 96, 160, 128)
    x = torch.randn(b, m, k, device=device, dtype=torch.bfloat16)
    y = torch.randn(k, n, device=device, dtype=torch.bfloat16)
    report = check_against(broadcast_matmul(x, y), reference(x, y), reduction_length=k)
    print(f"broadcast_matmul: relative error {report.relative_norm:.1e}")


if __name__ == "__main__":
    main()
