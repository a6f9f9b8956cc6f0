"""Launches kernels of which a program holds one row."""

from __future__ import annotations

from typing import Any

import torch
import triton

ELEMENTS_PER_THREAD = 16
THREADS = 32


def launch_rows(kernel: Any, x: torch.Tensor, *others: Any) -> None:
    """One program for each row of ``x``, with more warps for longer rows."""
    block = triton.next_power_of_2(x.size(1))
    num_warps = min(max(block // (ELEMENTS_PER_THREAD * THREADS), 1), 16)
    kernel[(x.size(0),)](x, *others, BLOCK=block, num_warps=num_warps)
