# type: ignore
"""Configs that do not fit their kernel."""

from __future__ import annotations

import torch

import tilesmith as helion
from tests.errors.case import Case
from tests.errors.definition_mistakes import copy
from tilesmith import exc


def run_copy(**keys):
    kernel = helion.kernel(copy.fn, config=helion.Config(**keys))
    return kernel.bind((torch.ones(8),), target="cuda:90").to_triton_code()


CASES = [
    Case(
        run_copy, exc.InvalidConfig, keywords={"block_sizes": [16], "num_warp": 4}, has_place=False
    ),
    Case(run_copy, exc.InvalidConfig, keywords={"block_sizes": [24]}, has_place=False),
    Case(run_copy, exc.InvalidConfig, keywords={"block_sizes": [16, 16]}, has_place=False),
    Case(run_copy, exc.InvalidConfig, keywords={"num_warps": 4}, has_place=False),
    Case(
        run_copy, exc.InvalidConfig, keywords={"block_sizes": [16], "num_warps": 3}, has_place=False
    ),
    Case(
        run_copy,
        exc.InvalidConfig,
        keywords={"block_sizes": [16], "pid_type": "flap"},
        has_place=False,
    ),
    Case(run_copy, exc.InvalidConfig, keywords={"block_sizes": "16"}, has_place=False),
]
