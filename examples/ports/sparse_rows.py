"""Products with a sparse matrix of compressed rows (CSR): sparse times dense, and dense at places.

`multiply` adds the rows of the dense matrix that a row of the sparse one names. `multiply_at`
computes only those elements of a product that the sparse matrix has, which is the gradient of its
values. A program takes one row, or as many as its tile has, each with a length of its own.
"""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against


@helion.kernel
def multiply(
    starts: torch.Tensor, columns: torch.Tensor, values: torch.Tensor, dense: torch.Tensor
) -> torch.Tensor:
    """`sparse @ dense`: row `i` has ``values`` at ``columns`` from ``starts[i]`` on."""
    num_rows, width = starts.size(0) - 1, dense.size(1)
    out = torch.empty([num_rows, width], dtype=dense.dtype, device=dense.device)
    for tile_r, tile_n in hl.tile([num_rows, width], block_size=[1, None]):
        row = tile_r.begin
        acc = hl.zeros([tile_n], dtype=torch.float32)
        for tile_k in hl.tile(starts[row], starts[row + 1]):
            factors = values[tile_k].to(torch.float32)
            found = dense[columns[tile_k], tile_n].to(torch.float32)
            acc = acc + (factors[:, None] * found).sum(0)
        out[row, tile_n] = acc.to(out.dtype)
    return out


@helion.kernel
def multiply_at(
    starts: torch.Tensor, columns: torch.Tensor, left: torch.Tensor, right: torch.Tensor
) -> torch.Tensor:
    """The elements of `left @ right.T` that the sparse matrix has, in the order of its values."""
    num_rows, width = left.size()
    out = torch.empty([columns.size(0)], dtype=left.dtype, device=left.device)
    for tile_r in hl.tile(num_rows):
        begin = starts[tile_r]
        for tile_k in hl.jagged_tile(starts[tile_r.index + 1] - begin):
            places = begin[:, None] + tile_k.index[None, :]
            acc = hl.zeros([tile_r, tile_k], dtype=torch.float32)
            for tile_n in hl.tile(width):
                rows = left[tile_r, tile_n].to(torch.float32)
                found = right[columns[places], tile_n].to(torch.float32)
                acc = acc + (rows[:, None, :] * found).sum(-1)
            out[places] = acc.to(out.dtype)
    return out


def to_dense(
    starts: torch.Tensor, columns: torch.Tensor, values: torch.Tensor, width: int
) -> torch.Tensor:
    """The sparse matrix as fp64 with zeros."""
    num_rows = starts.size(0) - 1
    rows = torch.repeat_interleave(torch.arange(num_rows, device=starts.device), starts.diff())
    dense = torch.zeros(num_rows, width, dtype=torch.float64, device=values.device)
    dense[rows, columns] = values.double()
    return dense


def reference_multiply(
    starts: torch.Tensor, columns: torch.Tensor, values: torch.Tensor, dense: torch.Tensor
) -> torch.Tensor:
    return to_dense(starts, columns, values, dense.size(0)) @ dense.double()


def reference_multiply_at(
    starts: torch.Tensor, columns: torch.Tensor, left: torch.Tensor, right: torch.Tensor
) -> torch.Tensor:
    ones = torch.ones_like(columns)
    is_there = to_dense(starts, columns, ones, right.size(0)) > 0
    return (left.double() @ right.double().T)[is_there]


def random_rows(num_rows: int, num_columns: int, share: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Starts and columns of a matrix that has about this share of its elements; row 0 is empty."""
    generator = torch.Generator().manual_seed(0)
    is_there = torch.rand(num_rows, num_columns, generator=generator) < share
    is_there[:1] = False
    starts = torch.nn.functional.pad(is_there.sum(1).cumsum(0), (1, 0))
    return starts, is_there.nonzero()[:, 1].contiguous()


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    num_rows, inner, width = (20000, 4000, 256) if device == "cuda" else (300, 100, 40)
    starts, columns = (x.to(device) for x in random_rows(num_rows, inner, 0.05))
    values = torch.randn(columns.size(0), device=device, requires_grad=True)
    dense = torch.randn(inner, width, device=device)
    out = multiply(starts, columns, values, dense)
    right = reference_multiply(starts, columns, values.detach(), dense)
    report = check_against(out.detach(), right, reduction_length=inner)
    grad = torch.randn_like(out)
    right = reference_multiply_at(starts, columns, grad, dense)
    # The gradient that is derived, and the kernel that computes the same.
    (derived,) = torch.autograd.grad(out, values, grad)
    for found in (derived, multiply_at(starts, columns, grad, dense)):
        check_against(found, right, reduction_length=width)
    print(f"sparse_rows: relative error {report.relative_norm:.1e}")


if __name__ == "__main__":
    main()
