# type: ignore
"""Kernels whose calls are written down: with globals, helpers, classes and a mistake."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

import torch

import tilesmith as helion
import tilesmith.language as hl

SCALE = 0.5
LIMITS = [1, 2]
WEIGHTS = torch.arange(4.0)


class Mode(enum.Enum):
    ADD = 1


@dataclass
class Pair:
    first: torch.Tensor
    factor: float


def halved(x):
    return x * SCALE * math.sqrt(4.0)


def scaled(v, times=LIMITS[1]):
    return halved(v) * times


def gathers(pair, index, n: int, flag: bool, kind: hl.constexpr, rows: list, mode=None):
    x = pair.first
    out = torch.empty([index.size(0)], dtype=x.dtype, device=x.device)
    for tile in hl.tile(index.size(0)):
        value = scaled(x[index[tile]]) * n + rows[0][tile] * pair.factor
        if kind == "shift":
            value = value + 1
        out[tile] = value + WEIGHTS[0]
    return out


def adds(x, y):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        # comments stay
        out[tile] = x[tile] + y[tile]
    return out


def mistaken(x):
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = x[1 + tile]
    return out


def fresh(function, **settings):
    """A kernel that has not been called yet."""
    return helion.kernel(function, **settings)
