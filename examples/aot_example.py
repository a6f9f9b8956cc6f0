"""Ahead of time: a config for each kind of shape, everything compiled before the first call.

One kernel serves all sizes. `choose_config` says which config suits which row length, whatever the
number of rows; `prepare` compiles them all at start-up; a call then only looks its function up.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against

LONG_ROW = 4096
Run = Callable[[torch.Tensor], torch.Tensor]


@helion.kernel(static_shapes=False)
def row_softmax(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile_m in hl.tile(x.size(0)):
        out[tile_m, :] = torch.nn.functional.softmax(x[tile_m, :], dim=1)
    return out


@helion.kernel(static_shapes=False)
def row_sum(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0)], dtype=x.dtype, device=x.device)
    for tile_m in hl.tile(x.size(0)):
        out[tile_m] = x[tile_m, :].sum(-1)
    return out


def choose_config(columns: int) -> helion.Config:
    """Short rows several at a time; long rows one at a time, in chunks."""
    if columns >= LONG_ROW:
        return helion.Config(block_sizes=[1], reduction_loops=[2048], num_warps=8)
    return helion.Config(block_sizes=[helion.next_power_of_2(helion.cdiv(1024, columns))])


class Prepared:
    """A kernel compiled for given row lengths."""

    def __init__(self, kernel: helion.Kernel, samples: list[torch.Tensor]) -> None:
        self._runs: dict[int, Run] = {x.size(1): self._compile(kernel, x) for x in samples}

    @staticmethod
    def _compile(kernel: helion.Kernel, sample: torch.Tensor) -> Run:
        return kernel.bind((sample,)).compile_config(choose_config(sample.size(1)))

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Run what was compiled for rows of this length."""
        return self._runs[x.size(1)](x)


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    lengths = (128, 1000, 8192)
    # Samples say what there will be: types and row lengths. Nothing runs on them.
    samples = [torch.empty(8, n, device=device) for n in lengths]
    prepared = {kernel.name: Prepared(kernel, samples) for kernel in (row_softmax, row_sum)}
    for n in lengths:
        x = torch.randn(37, n, device=device)
        exact = {"row_softmax": torch.softmax(x.double(), 1), "row_sum": x.double().sum(1)}
        for name, wanted in exact.items():
            report = check_against(prepared[name](x), wanted, reduction_length=n)
            print(f"aot_example: {name}, rows of {n}, relative error {report.relative_norm:.1e}")


if __name__ == "__main__":
    main()
