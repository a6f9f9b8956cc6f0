"""A few configs for sixty shapes of a product and of attention: how far behind each one's best?

``python -m benchmarks.shapes --kernel matmul`` on a GPU prints the report and the decision. Time is
about twice ``--budget`` for each shape: 60 shapes with 3 seconds take some six minutes. What is
measured stays in the cache, so a run that was cut off goes on where it was. ``--every 3`` takes
every third shape.
"""

from __future__ import annotations

import argparse
from itertools import product

import torch

from examples.attention import attention
from examples.matmul import matmul
from tilesmith.dispatch.tuning import Goal, tune_shapes
from tilesmith.jit.kernel import Kernel
from tilesmith.tune.autotune import Autotuner

Shape = tuple[int, ...]
KERNELS: dict[str, Kernel] = {"matmul": matmul, "attention": attention}
LAYERS = ((4096, 4096), (11008, 4096), (4096, 11008), (5120, 5120), (8192, 1024))
"""Columns and length of products, as layers of language models have them."""
ROWS = (1, 8, 16, 48, 64, 128, 256, 512, 1000, 2048, 4096, 8192)
BATCHES = ((1, 8), (1, 32), (2, 16), (4, 32))
LENGTHS = (128, 256, 512, 777, 1024, 2048, 4096, 8192)
DEPTHS = (64, 128)


def shapes_of(kernel: str) -> list[Shape]:
    """Sixty shapes: rows, columns and length; or batch, heads, tokens and depth."""
    if kernel == "matmul":
        return [(m, n, k) for m in ROWS for n, k in LAYERS]
    found = [(*batch, tokens, depth) for tokens, batch, depth in product(LENGTHS, BATCHES, DEPTHS)]
    # The longest of the largest batches take seconds each and say nothing new.
    return sorted(found, key=lambda shape: shape[0] * shape[1] * shape[2] ** 2 * shape[3])[:60]


def make(kernel: str, shape: Shape, device: str) -> tuple[torch.Tensor, ...]:
    """Arguments in half precision."""
    if kernel == "matmul":
        m, n, k = shape
        sizes: list[Shape] = [(m, k), (k, n)]
    else:
        sizes = [shape] * 3
    return tuple(torch.randn(size, device=device).half() for size in sizes)


def main() -> None:
    """Search, decide, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernel", choices=KERNELS, default="matmul")
    parser.add_argument("--budget", type=float, default=3.0, help="seconds for each search")
    parser.add_argument("--pool", type=int, default=40, help="configs measured on every shape")
    parser.add_argument("--every", type=int, default=1)
    given = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    shapes = shapes_of(given.kernel)[:: given.every]
    samples = [make(given.kernel, shape, device) for shape in shapes]
    goal = Goal(0.03, 8, given.budget, given.pool)
    print(tune_shapes(KERNELS[given.kernel], samples, Autotuner, goal).file_text(), flush=True)


if __name__ == "__main__":
    main()
