"""The time of a kernel on the device of its arguments, where that is the one the page is about."""

from __future__ import annotations

from tilesmith.jit.bound_kernel import BoundKernel
from tilesmith.jit.compiled_kernel import ConfigLike
from tilesmith.measure.timer import time_on_cpu, time_on_device

REPEATS, NAME = 15, "kernel"


class NotHereError(Exception):
    """The page is about a device that the arguments are not on."""


def measure_ms(bound: BoundKernel, config: ConfigLike) -> float:
    """The median time of a call with the arguments that the kernel was bound to."""
    kinds = bound.definition.backends.of(bound.target).device_types
    if bound.device.type not in kinds:
        raise NotHereError(f"{bound.target} is not here: arguments are on {bound.device.type}")
    arguments = bound.specialization.recall_arguments()
    run = bound.compile_config(config)
    run(*arguments)
    timer = time_on_cpu if bound.device.type == "cpu" else time_on_device
    return timer({NAME: lambda: run(*arguments)}, repeats=REPEATS)[NAME].median_ms
