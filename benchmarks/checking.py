"""What every benchmark does before it times: run twice over poisoned memory, name what failed."""

from __future__ import annotations

from typing import Any

import torch

from tilesmith.measure.timer import Work

Tensors = tuple[torch.Tensor, ...]


def results_of(returned: Any) -> Tensors:
    """A result as a tuple of tensors."""
    return returned if isinstance(returned, tuple) else (returned,)


def run_poisoned(work: Work) -> Tensors:
    """Results of a second call, into memory filled with NaN after the first."""
    # Freed right after, it is what the allocator hands out to the second call.
    for output in results_of(work()):
        output.fill_(float("nan"))
    return results_of(work())


def describe(error: Exception) -> str:
    """Type and first line of an exception."""
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"
