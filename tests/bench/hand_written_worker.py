"""Runs the hand-written kernels under Triton's interpreter at boundary sizes, against fp64.

A process of its own with TRITON_INTERPRET set. It prints a line for each result that is right, and
ends with an error at the first that is not.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import torch

from benchmarks.hand_written import add, attention, layer_norm, matmul, rms_norm, softmax
from benchmarks.suites.attention import exact_attention, exact_causal_attention
from benchmarks.suites.widening import widened
from benchmarks.tuning_workloads import eager_rms_norm
from benchmarks.workloads import eager_layer_norm, eager_softmax
from tilesmith.numerics.compare import check_against
from tilesmith.numerics.inputs import random_tensor

ROWS = ((1, 1), (3, 64), (5, 65), (2, 127))
# TMA wants rows of whole groups of 16 bytes.
PRODUCTS = ((1, 8, 16), (16, 32, 32), (33, 40, 56), (200, 24, 72))
# Heads, queries, keys.
HEADS = ((1, 1, 1), (2, 16, 16), (1, 33, 17), (2, 31, 70))
WIDTH = 16
Trial = tuple[Any, Any, tuple[torch.Tensor, ...], int]


def tensors(*shapes: tuple[int, ...], dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    return tuple(random_tensor(shape, dtype, seed=seed) for seed, shape in enumerate(shapes))


def row_trials(dtype: torch.dtype) -> Iterator[Trial]:
    for size in ROWS:
        x, weight, bias = tensors(size, size[1:], size[1:], dtype=dtype)
        yield softmax.softmax, eager_softmax, (x,), size[1]
        yield layer_norm.layer_norm, eager_layer_norm, (x, weight, bias), size[1]
        yield rms_norm.rms_norm, eager_rms_norm, (x, weight), size[1]
    for count in (1, add.BLOCK, add.BLOCK + 1):
        yield add.add, torch.add, tensors((count,), (count,), dtype=dtype), 1


def product_trials(dtype: torch.dtype) -> Iterator[Trial]:
    for m, k, n in PRODUCTS:
        x, y, z = tensors((m, k), (k, n), (n, k), dtype=dtype)
        yield matmul.matmul, torch.mm, (x, y), k
        yield matmul.matmul, torch.mm, (x, z.t()), k


def attention_trials(dtype: torch.dtype) -> Iterator[Trial]:
    for heads, m, n in HEADS:
        q, k, v = tensors((heads, m, WIDTH), (heads, n, WIDTH), (heads, n, WIDTH), dtype=dtype)
        yield attention.attention, exact_attention, (q, k, v), n * WIDTH
        if m == n:
            yield attention.causal_attention, exact_causal_attention, (q, k, v), n * WIDTH
    x = tensors(*[(2, 3, 50, WIDTH)] * 3, dtype=dtype)
    yield attention.causal_attention, exact_causal_attention, x, 50 * WIDTH


def main() -> None:
    # Trying all configs needs a device, and small blocks have more borders.
    matmul.matmul_kernel.configs = [matmul.config(16, 32, 16, 1, 1)]
    attention.attention_kernel.configs = [attention.config(32, 16, 1, 1)]
    for dtype in (torch.float32, torch.float16):
        for trials in (row_trials, product_trials, attention_trials):
            for function, exact, arguments, length in trials(dtype):
                report = check_against(
                    function(*arguments),
                    widened(exact)(*arguments),
                    reduction_length=length,
                    intermediate=dtype if trials is attention_trials else None,
                )
                shapes = [tuple(argument.shape) for argument in arguments]
                sys.stdout.write(f"{function.__name__} {shapes} {dtype} {report.max_ulp:.2f} ulp\n")


if __name__ == "__main__":
    main()
