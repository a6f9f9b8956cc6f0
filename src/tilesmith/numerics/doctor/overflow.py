"""Where a kernel, as it is written, first computes what its type cannot hold."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from typing import Any

import torch

from tilesmith.interpreter.frame import Frame
from tilesmith.interpreter.run import EVALUATORS
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.reduction import Reduce, Scan
from tilesmith.numerics.doctor.reruns import Reruns


def find_overflow(reruns: Reruns) -> str:
    """The line that makes infinities or NaNs of numbers; empty if none does."""
    first: list[Operation] = []
    kinds = (Elementwise, Cast, Dot, Reduce, Scan)
    reruns.as_written({kind: _watched(EVALUATORS[kind], first) for kind in kinds})
    if not first:
        return ""
    loc = first[0].loc
    return f"{loc}: `{linecache.getline(loc.file, loc.line).strip()}`"


def _watched(
    evaluate: Callable[[Any, Frame], Any], first: list[Operation]
) -> Callable[[Any, Frame], Any]:
    def run(op: Operation, frame: Frame) -> Any:
        result = evaluate(op, frame)
        if not first and _is_lost(result):
            values = (frame.values.get(operand) for operand in op.operand_values())
            if not any(map(_is_lost, values)):
                first.append(op)
        return result

    return run


def _is_lost(value: Any) -> bool:
    is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
    return is_float and not bool(value.isfinite().all())
