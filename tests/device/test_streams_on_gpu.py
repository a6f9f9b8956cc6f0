"""Kernels whose programs wait for each other, on more streams than have room: all of them end."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

pytestmark = [
    pytest.mark.device,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]
SECONDS = 240
"""For a process: compiling, and what takes milliseconds unless it takes for ever."""
PROGRAM = """
import torch
from examples.matmul_layernorm import matmul_layernorm, reference
n = 128 * 32
shapes = ((512, 64), (64, n), (n,), (n,))
given = [torch.randn(shape, device="cuda", dtype=torch.bfloat16) for shape in shapes]
args = matmul_layernorm.normalize_args(*given)
bound = matmul_layernorm.bind(args)
spec = bound.config_spec.others["exchange"]
run = bound.compile_config(spec.default_config().updated(structure="exchange"))
right = run(*args)
wanted = reference(*given)
assert (right.double() - wanted).abs().max() < 0.1
streams = [torch.cuda.Stream() for _ in range(16)]
torch.cuda.synchronize()
results = []
for turn in range(40):
    for stream in streams:
        with torch.cuda.stream(stream):
            results.append(run(*args))
torch.cuda.synchronize()
assert all(torch.equal(result, right) for result in results)
"""


def test_many_streams_of_kernels_that_exchange_values_end() -> None:
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=SECONDS)
    assert not done.returncode, done.stderr[-2000:]
