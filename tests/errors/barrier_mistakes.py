# type: ignore
"""Barriers that stand elsewhere than between two top-level loops, or cannot work as configured."""

from __future__ import annotations

import torch

import tilesmith as helion
import tilesmith.language as hl
from tests.errors.case import Case, X, row
from tilesmith import exc


@helion.kernel
def barrier_in_a_loop(x):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        hl.barrier()
        out[t] = x[t]
    return out


@helion.kernel
def barrier_before_the_loops(x):
    out = torch.empty_like(x)
    hl.barrier()
    for t in hl.tile(x.size(0)):
        out[t] = x[t]
    return out


@helion.kernel
def barrier_after_the_loops(x):
    out = torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        out[t] = x[t]
    hl.barrier()
    return out


@helion.kernel
def bound_written_by_an_earlier_loop(x):
    out = torch.zeros_like(x)
    count = torch.zeros([], dtype=torch.int32)
    for _t in hl.tile(x.size(0)):
        hl.atomic_add(count, [], 1)
    for u in hl.tile(count):
        out[u] = x[u]
    return out


@helion.kernel
def stages(x):
    part, out = torch.empty_like(x), torch.empty_like(x)
    for t in hl.tile(x.size(0)):
        part[t] = x[t]
    hl.barrier()
    for u in hl.tile(x.size(0)):
        out[u] = part[u] + part[0]
    return out


def compile_stages(**config):
    bound = stages.bind((row(),), target="cuda:90")
    return bound.to_triton_code(helion.Config(block_sizes=[4, 4], **config))


CASES = [
    Case(barrier_in_a_loop, exc.BarrierOnlyAllowedAtTopLevel, X),
    Case(barrier_before_the_loops, exc.BarrierOnlyAllowedAtTopLevel, X),
    Case(barrier_after_the_loops, exc.BarrierOnlyAllowedAtTopLevel, X),
    Case(bound_written_by_an_earlier_loop, exc.LoopDependencyError, X),
    Case(
        compile_stages, exc.BarrierRequiresPersistent, keywords={"pid_type": "flat"},
        has_place=False,
    ),
    Case(
        compile_stages, exc.InvalidConfig, has_place=False,
        keywords={"pid_type": "persistent_blocked", "num_sm_multiplier": 4},
    ),
]  # fmt: skip
