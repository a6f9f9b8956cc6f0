# type: ignore
"""A script as its author wrote it for Helion: nothing in it names this package."""

# ruff: noqa: T201

from __future__ import annotations

import sys

import helion
import helion.language as hl
import torch
from helion import autotuner, exc, runtime
from helion._testing import DEVICE, HALF_DTYPE, run_example
from helion.autotuner import PowerOfTwoFragment
from helion.runtime.config import Config


@helion.kernel(config=Config(block_sizes=[16, 16]), ignore_warnings=[exc.TensorOperationInWrapper])
def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x, y = torch.broadcast_tensors(x, y)
    out = torch.empty(x.shape, dtype=torch.promote_types(x.dtype, y.dtype), device=x.device)
    for tile in hl.tile(out.size()):
        out[tile] = x[tile] + y[tile]
    return out


@helion.jit(autotune_effort="none", ignore_warnings=[exc.TensorOperationInWrapper])
def split_sums(x: torch.Tensor) -> torch.Tensor:
    parts = hl.register_tunable("parts", PowerOfTwoFragment(1, 8))
    out = torch.zeros([parts], dtype=torch.float32, device=x.device)
    step = helion.cdiv(x.size(0), parts)
    for part, tile in hl.tile([parts, step], block_size=[1, None]):
        index = part.begin * step + tile.index
        hl.atomic_add(out, [part], hl.load(x, [index], extra_mask=index < x.size(0)).sum()[None])
    return out.sum()


def main() -> None:
    x = torch.randn(33, 17, device=DEVICE, dtype=HALF_DTYPE)
    run_example(add, torch.add, (x, torch.randn_like(x)))
    rows = torch.arange(1000, device=DEVICE, dtype=torch.float32)
    run_example(
        {"split": split_sums}, {"torch": torch.sum, "mean": lambda v: v.mean() * 1000}, (rows,)
    )
    assert helion.runtime.config.Config is helion.Config is runtime.Config
    assert autotuner.PowerOfTwoFragment is PowerOfTwoFragment
    print("arguments", sys.argv[1:], __name__, helion.__name__)
    if "--fail" in sys.argv:
        raise ValueError("as asked")
    if "--exit" in sys.argv:
        sys.exit(7)
    if "--wrong" in sys.argv:
        run_example(add, torch.sub, (x, x))
    if "--mistake" in sys.argv:
        hl.zeros([4])


if __name__ == "__main__":
    main()
