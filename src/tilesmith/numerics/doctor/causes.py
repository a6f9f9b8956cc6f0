"""Causes of errors, each found by interpreting the kernel again: cancellation, overflow, races.

How much a kernel amplifies roundings is its condition. Each value that the fp64 form of the kernel
loads or computes is changed at random by one part in 2**28. A result that changes n times as much
has the condition n: of its digits, log10(n) are lost, whatever the type is, because large terms
cancel on the way.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from tilesmith.compiler.interpreter_tiles import split_tile_sizes
from tilesmith.diagnostics.catalogue import BaseError
from tilesmith.exc import DuplicateStoreIndicesError, RaceDetected
from tilesmith.interpreter.frame import Frame, prepare_function
from tilesmith.interpreter.observers import Sampling, TimeLimitError
from tilesmith.interpreter.run import EVALUATORS
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import Full
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Load
from tilesmith.ir.ops.reduction import Reduce, ReduceKind, Scan
from tilesmith.ir.traversal import walk_function
from tilesmith.ir.types import Value
from tilesmith.numerics.doctor.findings import (
    OURS,
    Agreement,
    CauseKind,
    DiagnosedCall,
    ErrorSources,
    Examination,
    Finding,
    Scope,
    choose_config,
)
from tilesmith.numerics.doctor.reruns import Evaluators, Reruns, Results, TooSlowError, find_sources
from tilesmith.numerics.oracle import NoReferenceError
from tilesmith.numerics.reference_setup import needs_all_programs
from tilesmith.numerics.tolerance import describe_index, rms
from tilesmith.passes.roundings import CannotWidenError, widen_floats

DISTURBANCE = 2.0**-28
_TRIALS = 3
_COMPUTED = (Elementwise, Dot, Reduce, Scan, Load, Cast)
"""Inputs of narrower types become fp64 by a cast, and are disturbed there."""
Evaluator = Callable[[Any, Frame], Any]
_MOST_PROGRAMS = 256
_SPLIT_SIZE = 32
"""Blocks without a size of their own in the check."""
Flaw = RaceDetected | DuplicateStoreIndicesError
_FAILURES = (BaseError, CannotWidenError, NoReferenceError, TooSlowError, RuntimeError, MemoryError)
"""Of interpreting a kernel in another form: the diagnosis does without."""


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
    # A constant is the same number in every form: it has no rounding to be amplified.
    constants = {op.result for op in walk_function(wide) if isinstance(op, Full)}
    trials = [reruns.wide(wide, _disturbed(seed, constants)) for seed in range(_TRIALS)]
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


def _disturbed(seed: int, constants: Collection[Value]) -> Evaluators:
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
        def run(op: Any, frame: Frame) -> Any:
            result = evaluate(op, frame)
            is_constant = isinstance(op, Cast) and op.x in constants
            return result if is_constant else disturb(result)

        return run

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

    def run(op: Operation, frame: Frame) -> Any:
        result = EVALUATORS[type(op)](op, frame)
        if not first and _is_lost(result):
            values = (frame.values.get(operand) for operand in op.operand_values())
            if not any(map(_is_lost, values)):
                first.append(op)
        return result

    reruns.as_written(dict.fromkeys(kinds, run))
    if not first:
        return ""
    loc = first[0].loc
    return f"{loc}: `{linecache.getline(loc.file, loc.line).strip()}`"


def _is_lost(value: Any) -> bool:
    is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
    return is_float and not bool(value.isfinite().all())


@dataclass(frozen=True)
class RaceCheck:
    """What the race detector says about a kernel."""

    finding: Finding | None = None
    skipped: str = ""
    """Why it could not look."""


def check_races(subject: DiagnosedCall) -> RaceCheck:
    """Run the kernel under the race detector."""
    found = _check_with(subject, _split_sizes(subject))
    # Where host code makes tensors that fit the tiles, tiles must stay as they are.
    return _check_with(subject, {}) if found.skipped else found


def _check_with(subject: DiagnosedCall, sizes: Mapping[str, int]) -> RaceCheck:
    try:
        flaw = _run_checked(subject, sizes)
    except (BaseError, TimeLimitError, RuntimeError, MemoryError) as error:
        return RaceCheck(skipped=str(error).partition("\n")[0])
    if flaw is None:
        return RaceCheck()
    text = str(flaw).partition("\n")[0]
    where = f" ({flaw.loc})" if flaw.loc is not None and flaw.loc.line else ""
    evidence = ("the race detector of the interpreter saw it, whatever the device does",)
    return RaceCheck(Finding(CauseKind.RACE, f"{text}{where}", evidence, OURS))


def find_unsteady(subject: DiagnosedCall, agreements: Sequence[Agreement]) -> list[Finding]:
    """Implementations whose repeated runs differ, and what that can come from."""
    dependence = order_dependence(subject)
    found: list[Finding] = []
    for agreement in agreements:
        if agreement.over is not Scope.REPEATS or agreement.skipped or agreement.is_same:
            continue
        evidence = (
            f"{agreement.num_different} of {agreement.num_elements} elements differ among "
            f"{agreement.num_runs} runs on the same inputs, such as {agreement.first}",
        )
        who = agreement.implementation
        if who == OURS and agreement.num_unwritten == agreement.num_different:
            text = f"No program writes {agreement.first}: it is what was in memory before."
            found.append(Finding(CauseKind.BUG, text, evidence, who))
        elif who == OURS and dependence:
            found.append(Finding(CauseKind.ORDER, dependence, evidence, who))
        else:
            text = f"repeated runs of {who} on the same inputs differ: it has a race"
            found.append(Finding(CauseKind.RACE, text, evidence, who))
    return found


def order_dependence(subject: DiagnosedCall) -> str:
    """That the order of programs decides the last bits, and where; empty if it does not."""
    return subject.bound.order_dependence(choose_config(subject.bound))


def _split_sizes(subject: DiagnosedCall) -> dict[str, int]:
    """Sizes that give several programs along every axis."""
    function = subject.function
    tuned = {b.slot: b for b in function.blocks if b.slot is not None}
    blocks = [_SPLIT_SIZE] * (max(tuned, default=-1) + 1)
    for slot, block in tuned.items():
        blocks[slot] = min(_SPLIT_SIZE, subject.sizes.get(block.name, _SPLIT_SIZE))
    split = split_tile_sizes(function, blocks)
    return {block.name: split[slot] for slot, block in tuned.items()}


def _run_checked(subject: DiagnosedCall, sizes: Mapping[str, int]) -> Flaw | None:
    limit_s = subject.oracle.time_limit_s
    sampling = _FirstPrograms(_MOST_PROGRAMS, time_limit_s=limit_s)
    if needs_all_programs(subject.function):
        sampling = Sampling(None, time_limit_s=limit_s)
    prepared, copies = prepare_function(subject.function), subject.copies(is_wide=False)
    try:
        subject.interpret(prepared, copies, sampling, sizes=sizes, races=True)
    except (RaceDetected, DuplicateStoreIndicesError) as flaw:
        return flaw
    return None


class _FirstPrograms(Sampling):
    """Neighbours race with each other, so the first programs are better than some at random."""

    def _numbers(self, count: int) -> Sequence[int]:
        return range(min(count, _MOST_PROGRAMS))


@dataclass(frozen=True)
class Causes:
    """What there is to say about a kernel besides its errors."""

    races: RaceCheck
    """By the detector."""
    unsteady: tuple[Finding, ...]
    """By repeated runs."""
    sources: tuple[ErrorSources, ...] = ()
    cancellation: Cancellation = field(default_factory=Cancellation)
    overflow: str = ""
    """The line that first makes an infinity or NaN, where results are such and should not."""
    unknown: str = ""
    """Why sources and cancellation are not known."""

    def worst_source(self, outputs: Collection[str]) -> ErrorSources | None:
        """Of the output whose error is furthest beyond the rounding of its type."""
        off = [s for s in self.sources if s.total > 0.0]
        # Tensors that host code goes on with are not what a user looks at.
        known = [s for s in off if s.output in outputs] or off
        return max(known, key=lambda s: s.total / max(s.of_result, 1e-300), default=None)


def find_causes(examination: Examination) -> Causes:
    """Look for races, and where errors come from."""
    subject = examination.subject
    races = check_races(subject)
    unsteady = tuple(find_unsteady(subject, examination.agreements))
    reason = _why_not(subject)
    if reason:
        return Causes(races, unsteady, unknown=reason)
    try:
        reruns = Reruns(subject)
        is_lost = any(s.lost for s in examination.statistics_of(OURS))
        overflow = find_overflow(reruns) if is_lost else ""
        return Causes(races, unsteady, find_sources(reruns), find_cancellation(reruns), overflow)
    except _FAILURES as error:
        return Causes(races, unsteady, unknown=str(error).partition("\n")[0])


def _why_not(subject: DiagnosedCall) -> str:
    reference = subject.launch_reference
    if reference.reason or not reference.tensors:
        return reference.reason or "there is no reference"
    if not any(x.native.is_floating_point() for x in reference.tensors.values()):
        return "there are no floats"
    return ""
