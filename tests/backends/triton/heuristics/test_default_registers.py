"""Default schedules on Hopper keep their tiles in registers, with the Triton that is installed.

What a compiler makes of a tile changes between releases: a product of words was seen to go from
108 registers and no stack to a stack of 3.7 KB for each thread. Nothing here needs a GPU.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
import triton.knobs

from examples.matmul import matmul
from examples.matmul_layernorm import matmul_layernorm
from examples.matmul_row_reduction import matmul_softmax
from tilesmith.backends.triton.build import compile_artifact
from tilesmith.jit.bound_kernel import BoundKernel

BF16, FP32 = torch.bfloat16, torch.float32
Size = tuple[int, int, int]
LAYER_NORMS: list[tuple[Size, torch.dtype]] = [
    ((512, 512, 512), BF16),
    ((1024, 1024, 1024), BF16),
    ((1024, 1024, 1024), FP32),
    ((1024, 512, 2048), BF16),
    ((2048, 2048, 2048), FP32),
    ((131072, 512, 512), BF16),
    ((131072, 512, 512), FP32),
    ((131072, 512, 2048), BF16),
    ((131072, 4096, 2048), BF16),
]


def bind(kernel: Any, size: Size, dtype: torch.dtype, num_vectors: int = 0) -> BoundKernel:
    m, k, n = size
    shapes = [(m, k), (k, n), *[(n,)] * num_vectors]
    tensors = [torch.empty(shape, dtype=dtype, device="meta") for shape in shapes]
    return kernel.bind(kernel.normalize_args(*tensors), target="cuda:90")


def stack_bytes(bound: BoundKernel, folder: Path) -> int:
    """Of each thread, for what found no register."""
    built = compile_artifact(bound.to_artifact(bound.config_spec.default_config()))
    path = folder / "kernel.cubin"
    path.write_bytes(built.binary)
    tool = triton.knobs.nvidia.cuobjdump.path
    command = [tool, "--dump-resource-usage", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    (found,) = re.findall(r"STACK:(\d+)", done.stdout)
    return int(found)


@pytest.mark.parametrize(("size", "dtype"), LAYER_NORMS, ids=str)
def test_products_with_norms_spill_nothing(size, dtype, tmp_path):
    assert stack_bytes(bind(matmul_layernorm, size, dtype, 2), tmp_path) == 0


@pytest.mark.parametrize("size", [(1024, 1024, 1024), (131072, 512, 2048)], ids=str)
def test_exponents_of_words_spill_nothing(size, tmp_path):
    assert stack_bytes(bind(matmul_softmax, size, FP32), tmp_path) == 0


@pytest.mark.parametrize("dtype", [BF16, FP32], ids=str)
@pytest.mark.parametrize("side", [512, 1024, 4096])
def test_products_spill_nothing(side, dtype, tmp_path):
    assert stack_bytes(bind(matmul, (side,) * 3, dtype), tmp_path) == 0
