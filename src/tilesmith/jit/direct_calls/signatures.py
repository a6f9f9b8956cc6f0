"""What native code asks of a call beside its arguments: whether torch traces, records, looks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _python_dispatch

from tilesmith.ir.types import INT32_LIMIT
from tilesmith.jit.specialization_key import INT32_RANGE
from tilesmith.jit.visible.profiling import is_profiled
from tilesmith.operators.inside.tangents import FORWARD_MODE
from tilesmith.runtime.calls.reader import ArgumentSignatures, TensorReader

WATCHES = (getattr(_python_dispatch, "is_in_torch_dispatch_mode", lambda: False),)
SLOW_WATCHES = (torch.jit.is_tracing,)
"""Whether torch records what happens: calls of kernels must then be seen as operators."""
_DISPATCH_MODE = _python_dispatch.__dict__, "_is_in_torch_dispatch_mode", False
"""Where torch notes what the first watch tells, and what stands there otherwise."""
_IS_NOTED = _DISPATCH_MODE[1] in _DISPATCH_MODE[0]
_CALM = (*FORWARD_MODE, *_DISPATCH_MODE) if _IS_NOTED else FORWARD_MODE


def make_signatures(
    reader: TensorReader,
    *,
    are_sizes_fixed: bool,
    num_args: int,
    otherwise: Callable[..., Any],
    anew: Callable[..., Any],
    observer: Callable[..., Any],
) -> ArgumentSignatures:
    """Native code that has learned no arguments yet; the functions are what it calls then."""
    made = reader.Forms(otherwise, are_sizes_fixed, *INT32_RANGE, INT32_LIMIT)
    made.watches, made.slow_watches = () if _IS_NOTED else WATCHES, SLOW_WATCHES
    made.calm, made.are_recorded = _CALM, torch.is_grad_enabled
    made.is_observed, made.observer = is_profiled, observer
    made.anew, made.num_args = anew, num_args
    return made
