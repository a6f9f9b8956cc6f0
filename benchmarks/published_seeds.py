"""Products with a reduced row under the config that a published formula gives, to compare with.

    tilesmith bench --kernel "matmul_*" --impl matmul_layernorm=benchmarks.published_seeds:layernorm

Founding case 3 has the formula, and what it gained on an H100.
"""

from __future__ import annotations

from typing import Any

import torch

from examples import matmul_layernorm, matmul_row_reduction
from tilesmith import Config

ACCUMULATOR_BYTES, OPERAND_BYTES = 128 << 10, 192 << 10


def row_config(n: int, k: int, itemsize: int) -> Config:
    """A whole row of the product in registers: 128 KiB of accumulator, 192 KiB of operands."""
    rows = min(64, 128 // itemsize, 1 << (ACCUMULATOR_BYTES // (4 * n)).bit_length() - 1)
    rows, depth, stages = max(16, rows), min(32, k), 3
    if stages * depth * n * itemsize > OPERAND_BYTES:
        depth = 16
    while stages > 1 and stages * depth * n * itemsize > OPERAND_BYTES:
        stages -= 1
    warps = 4 if rows * n <= 16384 else 8
    return Config(block_sizes=[rows, depth], num_warps=warps, num_stages=stages)


def run_with_formula(kernel: Any, *arguments: Any) -> torch.Tensor:
    """The kernel's result under the formula's config."""
    x, y = arguments[:2]
    args = kernel.normalize_args(*arguments)
    config = row_config(y.size(1), x.size(1), x.element_size())
    return kernel.bind(args).compile_config(config)(*args)


def layernorm(*arguments: Any) -> torch.Tensor:
    """``matmul_layernorm`` under the formula's config."""
    return run_with_formula(matmul_layernorm.matmul_layernorm, *arguments)


def rms_norm(*arguments: Any) -> torch.Tensor:
    """``matmul_rms_norm`` under the formula's config."""
    return run_with_formula(matmul_row_reduction.matmul_rms_norm, *arguments)


def softmax(*arguments: Any) -> torch.Tensor:
    """``matmul_softmax`` under the formula's config."""
    return run_with_formula(matmul_row_reduction.matmul_softmax, *arguments)


def l2_normalize(*arguments: Any) -> torch.Tensor:
    """``matmul_l2_normalize`` under the formula's config."""
    return run_with_formula(matmul_row_reduction.matmul_l2_normalize, *arguments)


def logsumexp(*arguments: Any) -> torch.Tensor:
    """``matmul_logsumexp`` under the formula's config."""
    return run_with_formula(matmul_row_reduction.matmul_logsumexp, *arguments)
