"""What generated modules need beside Triton: launches, and facts of devices."""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from typing import Any

import torch

import tilesmith.exc as errors
from tilesmith.runtime.device import target_of

COMPUTE_UNITS_OF_A_CHIPLET = {"gfx942": 38, "gfx950": 32, "gfx951": 32}
"""Some are switched off, not the same number on each."""


@lru_cache(maxsize=64)
def get_num_sm(device: torch.device, *, reserved_sms: int = 0) -> int:
    """Number of streaming multiprocessors (compute units on AMD, cores of a CPU), at least 1.

    The reserved ones are not counted.
    """
    if device.type == "cuda":
        count = torch.cuda.get_device_properties(device).multi_processor_count
    else:
        count = target_of(device).num_sms
    return max(1, count - reserved_sms)


def get_num_xcd(device: torch.device) -> int:
    """Number of chiplets of an AMD GPU; 1 for any other device."""
    per_chiplet = COMPUTE_UNITS_OF_A_CHIPLET.get(target_of(device).arch, 0)
    if not per_chiplet:
        return 1
    units = get_num_sm(device)
    count = max(1, round(units / per_chiplet))
    return count if abs(units - count * per_chiplet) <= per_chiplet / 4 else 1


def default_launcher(
    triton_kernel: Any,
    grid: tuple[int, ...],
    *args: Any,
    num_warps: int,
    num_stages: int,
    ptx_options: str | None = None,
    launch_cooperative_grid: bool = False,
    **options: Any,
) -> Any:
    """Launch a function under ``triton.jit``: what a generated module calls where it launches.

    Example:
        ``default_launcher(_add, (64,), x, y, out, num_warps=4, num_stages=1)``
    """
    remote = [name for name in options if name.startswith("_remote_")]
    if remote:
        raise errors.BackendUnsupported(operation=f"a launch with {remote[0]}", backend="triton")
    if ptx_options is not None:
        options["ptx_options"] = ptx_options
    if launch_cooperative_grid:
        options["launch_cooperative_grid"] = True
    options |= {"num_warps": num_warps, "num_stages": num_stages}
    return triton_kernel.run(*args, grid=grid, warmup=False, **options)


def set_triton_allocator() -> None:
    """Give Triton memory of torch's for descriptors that kernels make themselves."""

    def allocate(size: int, *_: object) -> torch.Tensor:
        return torch.empty(size, dtype=torch.int8, device="cuda")

    import_module("triton").set_allocator(allocate)
