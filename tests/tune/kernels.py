"""Small kernels for searches on the CPU."""

from __future__ import annotations

from typing import Any

import torch

import tilesmith
import tilesmith.language as hl


def add_function(x, y):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[tile] + y[tile]
    return out


def scale_in_place_function(x, factor: float):
    for tile in hl.tile(x.size(0)):
        x[tile] = x[tile] * factor
    return x


ONE_THREAD: dict[str, Any] = {"num_threads": 1}
"""On a busy machine threads that wait for each other make a search many times as long."""


def make_add(**options):
    return tilesmith.kernel(add_function, **{**ONE_THREAD, **options})


def make_scale(**options):
    return tilesmith.kernel(scale_in_place_function, **{**ONE_THREAD, **options})


def config(size: int) -> tilesmith.Config:
    return tilesmith.Config(block_sizes=[size])
