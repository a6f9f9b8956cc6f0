"""Table lookup: rows of a weight gathered by a tensor of indices."""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against


@helion.kernel
def embedding(indices: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    flat = indices.reshape(-1)
    _, dim = weight.size()
    out = torch.empty([flat.size(0), dim], dtype=weight.dtype, device=weight.device)
    for tile_i, tile_d in hl.tile([flat.size(0), dim]):
        out[tile_i, tile_d] = weight[flat[tile_i], tile_d]
    return out.view([*indices.size(), dim])


def reference(indices: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.embedding(indices, weight.double())


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    weight = torch.randn(1000, 64, device=device)
    indices = torch.randint(1000, [256, 32], device=device)
    report = check_against(embedding(indices, weight), reference(indices, weight))
    print(f"embedding: {report.max_ulp:.2f} ulp")


if __name__ == "__main__":
    main()
