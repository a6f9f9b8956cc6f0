"""Shared memory of operands that a loop computes, against what Triton 3.7.1 makes for sm_90."""

from __future__ import annotations

import pytest
import torch

from examples.se_block import se_block_bwd_w
from examples.squeeze_and_excitation_net import squeeze_excite_bwd_rows
from tilesmith.schedule.config import Config


def rows_args(dtype):
    sizes = [(8192, 2048), (8192, 2048), (2048, 64), (64, 2048), (8192, 64), (8192, 2048)]
    return [torch.empty(size, dtype=dtype, device="meta") for size in sizes]


def weight_args(dtype):
    return [torch.empty(16384, 256, dtype=dtype, device="meta") for _ in range(3)]


CASES = {
    "rows": (squeeze_excite_bwd_rows, rows_args),
    "weights": (se_block_bwd_w, weight_args),
}
# Kernel, element type, blocks, warps, stages, bytes that the compiled kernel has.
MEASURED = [
    ("rows", torch.bfloat16, [64, 128, 16], 4, 6, 344064),
    ("rows", torch.bfloat16, [64, 128, 16], 4, 4, 212992),
    ("rows", torch.float32, [64, 32, 16], 4, 3, 73728),
    ("weights", torch.float32, [32, 32, 32], 4, 3, 36864),
]


def spec_of(name, dtype):
    kernel, make = CASES[name]
    return kernel.bind(kernel.normalize_args(*make(dtype)), target="cuda:90").config_spec


@pytest.mark.parametrize("row", MEASURED, ids=str)
def test_what_operands_are_computed_from_is_counted(row):
    name, dtype, blocks, warps, stages, shared = row
    spec = spec_of(name, dtype)
    given = Config(block_sizes=blocks, num_warps=warps, num_stages=stages)
    assert spec.resources(spec.normalize(given)).shared_bytes == shared


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_defaults_fit(name, dtype):
    spec = spec_of(name, dtype)
    assert spec.resources(spec.default_config()).fits


def test_one_stage_starts_nothing_ahead():
    spec = spec_of("weights", torch.float32)
    given = Config(block_sizes=[32, 32, 32], num_warps=4, num_stages=1)
    assert spec.resources(spec.normalize(given)).shared_bytes <= 12288
