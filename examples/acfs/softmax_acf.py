"""Softmax under configs that spell out how it is run, with and without a file of compiler controls.

A config for one machine may name a file for NVIDIA's assembler. Such a config is accepted
everywhere: a key that a device has no use for changes nothing, and no config changes the result.
"""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tilesmith.numerics.compare import check_against

CONFIGS = (
    helion.Config(block_sizes=[1], num_warps=8, load_eviction_policies=["evict_first"]),
    helion.Config(block_sizes=[4], reduction_loops=[256], num_warps=4, num_stages=2),
    helion.Config(
        block_sizes=[8], num_warps=4, maxnreg=128, advanced_controls_file="softmax_h100.acf"
    ),
    helion.Config(block_sizes=[2], num_warps=4, pid_type="persistent_blocked", num_sm_multiplier=4),
)


@helion.kernel
def softmax_acf(x: torch.Tensor) -> torch.Tensor:
    m, _ = x.size()
    out = torch.empty_like(x)
    for tile_m in hl.tile(m):
        out[tile_m, :] = torch.nn.functional.softmax(x[tile_m, :], dim=1)
    return out


def reference(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x.double(), dim=1)


def main() -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    shape = (4096, 2560) if device == "cuda" else (64, 2560)
    x = torch.randn(shape, device=device, dtype=torch.bfloat16)
    exact = reference(x)
    bound = softmax_acf.bind((x,))
    for config in CONFIGS:
        out = bound.compile_config(config)(x)
        report = check_against(out, exact, reduction_length=shape[1])
        print(f"softmax_acf: blocks {config.block_sizes}, {report.max_ulp:.2f} ulp")


if __name__ == "__main__":
    main()
