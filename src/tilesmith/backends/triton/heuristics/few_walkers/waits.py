"""Warps by how often threads wait for each other."""

from __future__ import annotations

from tilesmith.ir.ops.reduction import Reduce
from tilesmith.schedule.rules import TargetedKernel

MANY_PROGRAMS = 8
"""For each multiprocessor: with fewer, threads of a program have to hide how long loads take."""


def has_many(kernel: TargetedKernel, rows: int) -> bool:
    """Whether there are enough programs of so many rows."""
    return kernel.programs(()) >= MANY_PROGRAMS * kernel.target.num_sms * rows


def waits_once(kernel: TargetedKernel) -> bool:
    """Whether a row has one reduction: more warps then, from 4097 columns on.

    RMS norm with 4 and 8 warps, ms on an H200: 8192x8192 0.0721, 0.0710; 3072x6144 0.0255, 0.0245;
    layer norm of 6144x8192, which has two, 0.0581, 0.0587.
    """
    return len(list(kernel.outline.ops(Reduce))) == 1


def warps_of_steps(kernel: TargetedKernel) -> int:
    """Of loops that walk rows: sums are kept by lanes, and nobody waits in a turn.

    4 and 8 warps: jsd of 8192x65536 1.614, 1.592; kl_div of 4096x65536 0.486, 0.481, of 4096x16384
    0.1372, 0.1350.
    """
    return 8 if all(op.kind == "sum" for op in kernel.outline.ops(Reduce)) else 4
