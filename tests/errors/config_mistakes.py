# type: ignore
"""Configs that do not fit their kernel."""

from __future__ import annotations

import torch

import tilesmith as helion
from tests.conformance.host_control_kernels import branches
from tests.errors.case import Case
from tests.errors.definition_mistakes import copy
from tilesmith import exc


def run_copy(**keys):
    kernel = helion.kernel(copy.fn, config=helion.Config(**keys))
    return kernel.bind((torch.ones(8),), target="cuda:90").to_triton_code()


def run_branches(**keys):
    kernel = helion.kernel(branches.fn, config=helion.Config(**keys))
    return kernel(torch.ones(8), True)


CASES = [
    Case(run_branches, exc.InvalidConfigLength, keywords={"block_sizes": [16]}, has_place=False),
    Case(run_branches, exc.InvalidConfig, keywords={"stages": [{}]}, has_place=False),
    Case(
        run_branches,
        exc.InvalidConfig,
        keywords={"block_sizes": [16, 16, 16], "range_unroll_factors": [2]},
        has_place=False,
    ),
    Case(
        run_branches,
        exc.InvalidConfig,
        keywords={"block_sizes": [16, 16, 16], "num_warp": 2},
        has_place=False,
    ),
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
