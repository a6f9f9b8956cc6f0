"""Tilesmith: PyTorch with tiles.

A kernel is a Python function with loops over ``hl.tile(...)`` and torch operations inside; it runs
on NVIDIA and AMD GPUs through Triton, and on the CPU.
"""

from __future__ import annotations

from tilesmith import exc, language, runtime
from tilesmith.frontend.host_functions import cdiv
from tilesmith.jit.kernel import Kernel
from tilesmith.schedule.config import Config
from tilesmith.schedule.schedule import next_power_of_2
from tilesmith.settings import RefMode, Settings
from tilesmith.tune.decorator import kernel

jit = kernel
__all__ = [
    "Config",
    "Kernel",
    "RefMode",
    "Settings",
    "cdiv",
    "exc",
    "jit",
    "kernel",
    "language",
    "next_power_of_2",
    "runtime",
]
