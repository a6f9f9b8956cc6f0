"""Ahead of time: a few configs for many shapes, and a decision by sizes that anybody can read.

`aot_kernel` makes one kernel for all sizes. `tune_shapes` searches each sample shape for its own
best, measures the best of all on every shape, and keeps as few configs as come near. What it writes
beside this file is ordinary Python: `key_row_softmax(x)` says which config a shape gets, with a few
comparisons of sizes, so shapes that nobody sampled have their branch too. Calls follow it.

`tilesmith record script.py` writes the shapes that a program really uses into files, and
`tilesmith dispatch examples.aot_example:row_softmax --shapes row_softmax.txt` does the rest.
"""

from __future__ import annotations

import argparse

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.autotuner import tune_shapes
from tilesmith.numerics.compare import check_against

ROWS, COLUMNS = (16, 256), (64, 1000, 8192)


@helion.aot_kernel
def row_softmax(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile_m in hl.tile(x.size(0)):
        out[tile_m, :] = torch.nn.functional.softmax(x[tile_m, :], dim=1)
    return out


@helion.aot_kernel
def row_sum(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0)], dtype=x.dtype, device=x.device)
    for tile_m in hl.tile(x.size(0)):
        out[tile_m] = x[tile_m, :].sum(-1)
    return out


def check(shape: tuple[int, int], device: str) -> None:
    """Both kernels on a shape, sampled or not, against fp64."""
    x = torch.randn(shape, device=device)
    exact = {row_softmax: torch.softmax(x.double(), 1), row_sum: x.double().sum(1)}
    for kernel, wanted in exact.items():
        report = check_against(kernel(x), wanted, reduction_length=shape[1])
        print(f"aot_example: {kernel.name}, {shape}, relative error {report.relative_norm:.1e}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--budget", type=float, default=2.0, help="seconds for each search")
    parser.add_argument("--write", action="store_true", help="leave the decisions beside this file")
    given = parser.parse_args()
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    samples = [(torch.randn(m, n, device=device),) for m in ROWS for n in COLUMNS]
    for kernel in (row_softmax, row_sum):
        found = tune_shapes(kernel, samples, within=0.05, max_configs=4, budget=given.budget)
        print(found.file_text())
        if given.write:
            found.path.write_text(found.file_text())
    for shape in ((16, 1000), (37, 3000)):
        check(shape, device)


if __name__ == "__main__":
    main()
