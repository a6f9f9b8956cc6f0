"""How much a kernel amplifies roundings: its condition, found by disturbing every value a little.

Each value that the fp64 form of the kernel loads or computes is changed at random by one part in
2**28. A result that changes n times as much has the condition n: of its digits, log10(n) are lost,
whatever the type is, because large terms cancel on the way.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from tilesmith.interpreter.frame import Frame
from tilesmith.interpreter.run import EVALUATORS
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Load
from tilesmith.ir.ops.reduction import Reduce, ReduceKind, Scan
from tilesmith.numerics.doctor.reruns import Evaluators, Reruns, Results
from tilesmith.numerics.float_standard import rms
from tilesmith.numerics.judge_report import describe_index
from tilesmith.passes.widen_floats import widen_floats

DISTURBANCE = 2.0**-28
_TRIALS = 3
_COMPUTED = (Elementwise, Dot, Reduce, Scan, Load, Cast)
"""Inputs of narrower types become fp64 by a cast, and are disturbed there."""
Evaluator = Callable[[Any, Frame], Any]


@dataclass(frozen=True)
class Condition:
    """How much one tensor amplifies roundings on its way."""

    output: str
    overall: float
    """Of the tensor as a whole: change of its norm."""
    typical: float
    """The median over the elements."""
    highest: float
    """Of the worst element, often one that happens to be near zero."""
    worst: str = ""
    """That element: ``out[3, 5]``."""


@dataclass(frozen=True)
class CancellingLine:
    """A sum or difference whose terms are larger than it is."""

    location: str
    line: str
    ratio: float
    """Sum of the magnitudes of its terms over its own, in the middle of all elements."""


@dataclass(frozen=True)
class Cancellation:
    """What disturbing a kernel shows."""

    conditions: tuple[Condition, ...] = ()
    worst_line: CancellingLine | None = None

    def of(self, output: str) -> Condition | None:
        """The condition of one tensor."""
        return next((c for c in self.conditions if c.output == output), None)


def find_cancellation(reruns: Reruns) -> Cancellation:
    """Disturb the kernel, and look for the line where terms cancel most."""
    wide = widen_floats(reruns.function)
    ratios = _Ratios()
    reruns.wide(wide, ratios.evaluators)
    trials = [reruns.wide(wide, _disturbed(seed)) for seed in range(_TRIALS)]
    conditions = [_condition(reruns, trials, name) for name in reruns.truth]
    return Cancellation(tuple(conditions), ratios.worst())


def _condition(reruns: Reruns, trials: list[Results], output: str) -> Condition:
    truth = reruns.truth[output]
    scale = rms(reruns.known(output, truth.abs()))
    unit = DISTURBANCE * scale or 1.0
    # A comparison that a disturbance decides otherwise is not what is looked for: hence the least.
    overall = min(reruns.distance(trial, reruns.truth, output) for trial in trials) / unit
    changes = torch.stack([(trial[output] - truth).abs() for trial in trials])
    relative = changes.square().mean(0).sqrt() / (DISTURBANCE * truth.abs())
    known = reruns.known(output, relative.nan_to_num(nan=0.0))
    if not known.numel():
        return Condition(output, overall, 0.0, 0.0)
    positions = reruns.known_mask(output).flatten().nonzero().flatten()
    worst = describe_index(output, int(positions[known.argmax()]), truth.shape)
    return Condition(output, overall, float(known.median()), float(known.max()), worst)


def _disturbed(seed: int) -> Evaluators:
    generators: dict[torch.device, torch.Generator] = {}

    def disturb(result: Any) -> Any:
        if not isinstance(result, torch.Tensor) or result.dtype != torch.float64:
            return result
        device = result.device
        if device not in generators:
            generators[device] = torch.Generator(device).manual_seed(seed)
        signs = torch.randint(0, 2, result.shape, generator=generators[device], device=device)
        return result * (1.0 + DISTURBANCE * (2 * signs - 1).to(torch.float64))

    def wrap(evaluate: Evaluator) -> Evaluator:
        return lambda op, frame: disturb(evaluate(op, frame))

    return {kind: wrap(EVALUATORS[kind]) for kind in _COMPUTED}


class _Ratios:
    """Watches sums and differences for terms that cancel."""

    def __init__(self) -> None:
        self._highest: dict[Operation, float] = {}

    @property
    def evaluators(self) -> Evaluators:
        """What runs ops and watches them."""
        return {kind: self._watch(kind) for kind in _MAGNITUDES}

    def worst(self) -> CancellingLine | None:
        """Where terms cancel most."""
        if not self._highest:
            return None
        op = max(self._highest, key=self._highest.__getitem__)
        line = linecache.getline(op.loc.file, op.loc.line).strip()
        return CancellingLine(str(op.loc), line, self._highest[op])

    def _watch(self, kind: type[Operation]) -> Evaluator:
        evaluate, magnitude_of = EVALUATORS[kind], _MAGNITUDES[kind]

        def run(op: Operation, frame: Frame) -> Any:
            result = evaluate(op, frame)
            terms = magnitude_of(op, frame)
            if terms is not None and isinstance(result, torch.Tensor) and result.numel():
                middle = float((terms / result.abs()).nan_to_num(nan=1.0).median())
                self._highest[op] = max(self._highest.get(op, 0.0), middle)
            return result

        return run


def _of_elementwise(op: Elementwise, frame: Frame) -> torch.Tensor | None:
    if op.fn not in ("add", "sub") or not op.result.tile.dtype.is_float:
        return None
    left, right = (frame.tensor(arg).abs() for arg in op.args)
    return left + right


def _of_reduce(op: Reduce, frame: Frame) -> torch.Tensor | None:
    if op.reduction is not ReduceKind.SUM or not op.result.tile.dtype.is_float:
        return None
    return frame.tensor(op.x).abs().sum(op.axis)


def _of_dot(op: Dot, frame: Frame) -> torch.Tensor | None:
    if not op.result.tile.dtype.is_float:
        return None
    product = frame.tensor(op.lhs).abs() @ frame.tensor(op.rhs).abs()
    return product if op.acc is None else product + frame.tensor(op.acc).abs()


_MAGNITUDES: dict[type[Operation], Callable[[Any, Frame], torch.Tensor | None]] = {
    Elementwise: _of_elementwise,
    Reduce: _of_reduce,
    Dot: _of_dot,
}
"""What the magnitudes of the terms of an op add up to."""


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
