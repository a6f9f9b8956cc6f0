"""Calls that bypass Python: how native code finds a kernel's forms, and what it asks of torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _python_dispatch

from tilesmith.ir.types import INT32_LIMIT
from tilesmith.jit.definition import KernelDefinition
from tilesmith.jit.specialization_key import INT32_RANGE
from tilesmith.jit.visible.profiling import is_profiled
from tilesmith.operators.inside import FORWARD_MODE
from tilesmith.runtime.calls.reader import ArgumentSignatures, TensorReader


class AnsweredKernel:
    """A kernel whose calls native code answers: those that it recognises, all others ``__call__``.

    The function ``__call__`` stays what the class has: torch.compile reads it.
    """

    __slots__ = ("_signatures",)
    definition: KernelDefinition
    _signatures: ArgumentSignatures | None

    def _connect(self, kind: type, signatures: ArgumentSignatures | None) -> None:
        """From now on these recognise arguments; ``kind`` is the class that has ``__call__``."""
        reader = None if signatures is None else self.definition.find_reader()
        if reader is not None:
            reader.answer_calls(kind, "_signatures")
        self._signatures = signatures


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
