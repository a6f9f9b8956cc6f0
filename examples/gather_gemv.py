"""Pick matrices by an index tensor and multiply each by one vector, without copying any of them.

The stack `w: [experts, s, s]` is seen as `experts * s` rows. Row `r` of the result belongs to
choice `r // s` and to row `r % s` of the matrix chosen, which is one gather of rows.
"""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against


@helion.kernel(static_shapes=True)
def gather_gemv(w: torch.Tensor, choices: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    experts, size, inner = w.size()
    assert inner == x.size(0)
    num_choices = choices.size(0)
    rows = w.reshape([experts * size, inner])
    column = x.view(inner, 1)
    total = num_choices * size
    out = torch.empty([total, 1], dtype=x.dtype, device=x.device)
    for tile_r in hl.tile(total):
        expert = choices[tile_r.index // size]
        row = expert * size + tile_r.index % size
        acc = hl.zeros([tile_r, 1], dtype=torch.float32)
        for tile_k in hl.tile(inner):
            # A product with one column: its width is padded for the matrix units.
            acc = hl.dot(rows[row, tile_k], column[tile_k, :], acc=acc)
        out[tile_r, :] = acc.to(x.dtype)
    return out.view(num_choices, size)


def reference(w: torch.Tensor, choices: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return w[choices].double() @ x.double()


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    experts, size = (8, 2048) if device == "cuda" else (8, 160)
    w = torch.randn(experts, size, size, device=device, dtype=torch.float16)
    x = torch.randn(size, device=device, dtype=torch.float16)
    choices = torch.tensor([5, 2], device=device)
    report = check_against(
        gather_gemv(w, choices, x), reference(w, choices, x), reduction_length=size
    )
    print(f"gather_gemv: relative error {report.relative_norm:.1e}")


if __name__ == "__main__":
    main()
