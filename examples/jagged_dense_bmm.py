"""Each sequence of a ragged batch times a matrix of its own, plus a bias.

Sequence `i` holds rows `offsets[i]` to `offsets[i + 1]` and is multiplied by `dense[i]`. A program
takes one sequence; the jagged tile gives the rows, the product is an ordinary one.
"""

from __future__ import annotations

from itertools import pairwise

import torch

import tilesmith as helion
import tilesmith.language as hl
from examples.jagged_sum import random_offsets
from tilesmith.numerics.compare import check_against


@helion.kernel
def jagged_dense_bmm(
    offsets: torch.Tensor,
    jagged: torch.Tensor,
    dense: torch.Tensor,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    total, d = jagged.size()
    sequences, _, k = dense.size()
    out = torch.empty([total, k], dtype=jagged.dtype, device=jagged.device)
    for tile_s, tile_k in hl.tile([sequences, k], block_size=[1, None]):
        sequence = tile_s.begin
        begin, end = offsets[sequence], offsets[sequence + 1]
        for tile_r in hl.tile(begin, end):
            acc = hl.zeros([tile_r, tile_k], dtype=torch.float32)
            for tile_d in hl.tile(d):
                acc = torch.addmm(acc, jagged[tile_r, tile_d], dense[sequence, tile_d, tile_k])
            if bias is not None:
                acc = acc + bias[sequence, tile_k][None, :].to(torch.float32)
            out[tile_r, tile_k] = acc.to(jagged.dtype)
    return out


def reference(
    offsets: torch.Tensor,
    jagged: torch.Tensor,
    dense: torch.Tensor,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    out = torch.empty(jagged.size(0), dense.size(2), dtype=torch.double, device=jagged.device)
    for i, (begin, end) in enumerate(pairwise(offsets.tolist())):
        product = jagged[begin:end].double() @ dense[i].double()
        out[begin:end] = product if bias is None else product + bias[i].double()
    return out


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    sequences, d, k = 23, 34, 24
    offsets = random_offsets(sequences, 40, device)
    jagged = torch.randn(int(offsets[-1]), d, device=device, dtype=torch.float16)
    dense = torch.randn(sequences, d, k, device=device, dtype=torch.float16)
    bias = torch.randn(sequences, k, device=device, dtype=torch.float16)
    args = (offsets, jagged, dense, bias)
    report = check_against(jagged_dense_bmm(*args), reference(*args), reduction_length=d)
    print(f"jagged_dense_bmm: relative error {report.relative_norm:.1e}")


if __name__ == "__main__":
    main()
