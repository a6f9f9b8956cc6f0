"""Cholesky factors of many small matrices, each held in registers as a whole.

Column after column: the column is scaled by the root of its diagonal element, and its outer product
is taken out of what remains. A column of a value in registers is picked by a mask and a sum.
"""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against


@helion.kernel
def cholesky(a: torch.Tensor) -> torch.Tensor:
    """Lower factors of symmetric positive definite matrices `[batch, n, n]`."""
    batch, n, _ = a.size()
    n = hl.specialize(n)
    out = torch.empty_like(a)
    for tile_b in hl.tile(batch):
        rest = a[tile_b, :, :]
        factor = torch.zeros_like(rest)
        place = hl.arange(n)
        for j in range(n):
            is_column = (place == j)[None, None, :]
            column = torch.where(is_column, rest, 0.0).sum(-1)
            pivot = torch.where((place == j)[None, :], column, 0.0).sum(-1)
            column = torch.where((place >= j)[None, :], column, 0.0) * torch.rsqrt(pivot)[:, None]
            factor = torch.where(is_column, column[:, :, None], factor)
            rest = rest - column[:, :, None] * column[:, None, :]
        out[tile_b, :, :] = factor
    return out


def reference(a: torch.Tensor) -> torch.Tensor:
    return torch.linalg.cholesky(a.double())


def random_matrices(batch: int, n: int) -> torch.Tensor:
    """Well conditioned positive definite matrices."""
    x = torch.randn(batch, n, n, generator=torch.Generator().manual_seed(0))
    return x @ x.mT / n + torch.eye(n)


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    batch, n = (4096, 32) if device == "cuda" else (50, 12)
    a = random_matrices(batch, n).to(device)
    report = check_against(cholesky(a), reference(a), reduction_length=n * n)
    print(f"cholesky: relative error {report.relative_norm:.1e}")


if __name__ == "__main__":
    main()
