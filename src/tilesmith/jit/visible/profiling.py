"""What profilers see of a call: a range ``tilesmith::name`` around it, while one runs.

Native code asks whether one does at most every 20 us in each thread, so a call pays nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.profiler import record_function

is_profiled: Callable[[], bool] = getattr(torch.autograd, "_profiler_enabled", lambda: False)
"""Whether ranges go anywhere: to torch.profiler, NVTX or ITT. Torch has no other name for it; where
it has not this one, calls are not marked."""


def observe(name: str, call: Callable[..., Any], *args: Any) -> Any:
    """Call, in a range of the kernel's name if a profiler looks."""
    if not is_profiled():
        return call(*args)
    with record_function(f"tilesmith::{name}"):
        return call(*args)
