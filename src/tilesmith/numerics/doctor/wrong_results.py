"""Hypotheses about wrong results: changes of the kernel that give them, or what they look like.

A wrong epsilon, a factor that is missing or twice there, ``<`` for ``<=``: each constant, number
among the arguments and comparison of the kernel is changed in turn, until a change explains all
elements in fp64 or the time is over. The line that was changed is where two formulas differ. Where
none does, a factor, an offset, a shift or a missing part says where to look first.
"""

from __future__ import annotations

import linecache
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain
from math import e, isfinite, log2, sqrt
from time import monotonic

import torch

from tilesmith.diagnostics.catalogue import BaseError
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.elementwise import Elementwise
from tilesmith.ir.ops.indexing import Full
from tilesmith.ir.traversal import rewrite_function, walk_function
from tilesmith.numerics.doctor.errors import SAME_FORMULA, distance_in_fp64
from tilesmith.numerics.doctor.findings import (
    AS_WRITTEN,
    OURS,
    CauseKind,
    DiagnosedCall,
    ErrorStatistics,
    Examination,
    Finding,
    Outputs,
)
from tilesmith.numerics.doctor.reruns import Reruns, TooSlowError
from tilesmith.passes.roundings import CannotWidenError, widen_floats

ROUNDINGS = 16.0
"""Of the result's type, that a pattern may be off by."""
MOST_SECONDS = 5.0
SAME = 1e-7
"""Relative norm of a difference between results in fp64 that are of one formula."""
MOST_KNOWN = 0.9
"""Share of the elements that must have a value after a change, too."""
SMALL = 1e-2
"""Positive constants below are taken for an epsilon."""
EPSILONS = (0.0, 1e-12, 1e-10, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
OTHER_COMPARISON = {"lt": "le", "le": "lt", "gt": "ge", "ge": "gt"}
SIGNS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">="}
Change = tuple[str, DiagnosedCall, Function]
"""In words, and the call and the function after it."""
LEAST_ELEMENTS = 8
"""Of fewer, nearly anything is a factor of anything."""
SHIFTS = (1, -1, 2, -2)


def blame(examination: Examination, wrong: list[ErrorStatistics]) -> Finding:
    """Somebody is further off than types and sums justify."""
    ours = [s for s in wrong if s.implementation == OURS]
    if ours:
        hint = _name_difference(examination, OURS, ours[0].output)
        text = f"{_blame_kernel(examination, ours[0])}{hint}"
        return Finding(CauseKind.BUG, text, implementation=OURS)
    first = wrong[0]
    who = first.implementation
    apart = distance_in_fp64(examination, who)
    hint = _name_difference(examination, who, first.output)
    if apart is None:
        return Finding(CauseKind.BUG, f"{who} is wrong: {first.fault}.{hint}", implementation=who)
    evidence = (f"from the arguments widened to fp64 it is off by {apart:.2g} (relative norm)",)
    if apart > SAME_FORMULA:
        text = (
            f"{who} computes something else than the kernel, with exact arithmetic too: "
            f"{first.fault}.{hint} "
        )
        if examination.subject.is_reference_given:
            text += "The kernel computes what the reference does."
        else:
            text += "One of the two formulas is wrong; a reference (--reference) tells which."
        return Finding(CauseKind.BUG, text, evidence, who)
    text = (
        f"{who} computes the same as the kernel but rounds more on the way than the kernel "
        f"does: {first.fault}."
    )
    return Finding(CauseKind.ROUNDING, text, evidence, who)


def _blame_kernel(examination: Examination, ours: ErrorStatistics) -> str:
    """Whether it is the compiler's fault: then the source alone, interpreted, is right."""
    written = [s for s in examination.statistics_of(AS_WRITTEN) if s.output == ours.output]
    if any(s.fault for s in written):
        return (
            f"The kernel is wrong: {ours.fault}. So is its source, interpreted: it does not "
            "compute what the reference does."
        )
    if not written:
        return f"The kernel is wrong: {ours.fault}."
    return (
        f"The compiled kernel is wrong: {ours.fault}. Its own source, interpreted with "
        "the same roundings, is right."
    )


def _name_difference(examination: Examination, who: str, output: str) -> str:
    """A sentence with a space before it, or nothing.

    Of other implementations it is the change of the kernel that gives their result; of the kernel,
    the one after which it would give what the reference does.
    """
    subject = examination.subject
    truth = {name: tensor.truth for name, tensor in subject.reference.tensors.items()}
    wanted = truth if who == OURS else examination.wide.get(who)
    change = _find_change(examination, wanted) if wanted is not None else ""
    if change:
        made = "It would give what the reference does" if who == OURS else "The kernel gives that"
        return f" {made} {change}."
    found = (examination.wide.get(who) or examination.outputs[who])[output]
    pattern = _resemblance(truth[output], found, subject.reference.tensors[output].written)
    return f" Look first: {pattern}." if pattern else ""


def _find_change(examination: Examination, wanted: Outputs) -> str:
    try:
        return find_mutation(examination.subject, wanted)
    except (BaseError, CannotWidenError, TooSlowError, RuntimeError, MemoryError):
        return ""  # there is no fp64 form to change


def _resemblance(truth: torch.Tensor, got: torch.Tensor, written: torch.Tensor) -> str:
    if not got.is_floating_point() or not bool(written.all()):
        return ""
    closeness = max(SAME_FORMULA, ROUNDINGS * torch.finfo(got.dtype).eps)
    return describe_resemblance(truth, got.to(torch.float64), closeness)


def find_mutation(subject: DiagnosedCall, target: Mapping[str, torch.Tensor]) -> str:
    """The change after which the kernel gives ``target`` (fp64, by tensor); empty if none is found.

    Raises what running a kernel in fp64 raises.
    """
    truth = Reruns(subject).truth
    if not target or any(x.shape != getattr(truth.get(n), "shape", ()) for n, x in target.items()):
        return ""
    until = monotonic() + MOST_SECONDS
    for text, changed, function in chain(_of_arguments(subject), _of_ops(subject)):
        if monotonic() > until:
            return ""
        if _gives(changed, function, target):
            return text
    return ""


def _gives(subject: DiagnosedCall, function: Function, target: Mapping[str, torch.Tensor]) -> bool:
    # Elements that a change makes NaN are no longer known: the next one starts afresh.
    reruns = Reruns(subject)
    counts = {name: int(reruns.known_mask(name).sum()) for name in target}
    results = reruns.wide(widen_floats(function))
    for name, wanted in target.items():
        got = reruns.known(name, results[name])
        expected = reruns.known(name, wanted.to(results[name]))
        is_known = got.numel() >= MOST_KNOWN * counts[name] > 0
        if not is_known or float((got - expected).norm()) > SAME * float(expected.norm()):
            return False
    return True


def _of_arguments(subject: DiagnosedCall) -> Iterator[Change]:
    """Other numbers among the arguments."""
    for name, value in subject.arguments.items():
        if isinstance(value, float) and isfinite(value):
            for other in _others(value):
                changed = replace(subject, arguments={**subject.arguments, name: other})
                function = Reruns(changed).function
                yield f"with {name}={other:g} instead of {value:g}", changed, function


def _of_ops(subject: DiagnosedCall) -> Iterator[Change]:
    """Other constants and comparisons."""
    function = Reruns(subject).function
    for op in walk_function(function):
        for text, other in _replacements(op):
            line = linecache.getline(op.loc.file, op.loc.line).strip()
            yield f"with {text} at {op.loc}, `{line}`", subject, _with(function, op, other)


def _replacements(op: Operation) -> Iterator[tuple[str, Operation]]:
    if isinstance(op, Full) and isinstance(op.value, float) and isfinite(op.value):
        for other in _others(op.value):
            yield f"{other:g} in place of {op.value:g}", replace(op, value=other)
    elif isinstance(op, Elementwise) and op.fn in OTHER_COMPARISON:
        other = OTHER_COMPARISON[op.fn]
        yield f"`{SIGNS[other]}` in place of `{SIGNS[op.fn]}`", replace(op, fn=other)


def _others(value: float) -> list[float]:
    """What people write instead of a number."""
    if 0.0 < value < SMALL:
        found = [*EPSILONS]
    else:
        root, base = sqrt(abs(value)), log2(e)
        found = [1.0, 0.0, -value, value * base, value / base, root, value * value]
        found += [2.0 * value, 0.5 * value]
    return [other for other in dict.fromkeys(found) if other != value]


def _with(function: Function, op: Operation, other: Operation) -> Function:
    (result,) = op.results

    def rewrite(found: Operation) -> Operation:
        return other if found.results == (result,) else found

    return rewrite_function(function, rewrite)


def describe_resemblance(truth: torch.Tensor, got: torch.Tensor, closeness: float) -> str:
    """How ``got`` comes from ``truth`` (both fp64, of one shape); empty if in no known way.

    Example:
        >>> truth = torch.arange(1.0, 17.0, dtype=torch.float64)
        >>> describe_resemblance(truth, truth * 4, 1e-9)
        'every element is 4 times what it should be (4 is the square root of 16)'
    """
    if truth.numel() < LEAST_ELEMENTS or not bool(truth.isfinite().all()):
        return ""
    finite = got.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
    found = (*_parts(truth, got, closeness), *_wholes(truth, finite, closeness))
    return next(iter(found), "")


def _wholes(truth: torch.Tensor, got: torch.Tensor, closeness: float) -> Iterator[str]:
    """What holds for all elements alike."""
    factor = float((got * truth).sum() / (truth * truth).sum().clamp(min=1e-300))
    if factor and _is_close(got, factor * truth, closeness):
        yield f"every element is {factor:.6g} times what it should be{_known_as(factor, truth)}"
    offset = float((got - truth).median())
    if offset and _is_close(got - truth, torch.full_like(truth, offset), closeness):
        yield f"every element is off by {offset:.6g}"
    for axis, size in enumerate(truth.shape):
        for shift in SHIFTS:
            left, right = max(shift, 0), max(-shift, 0)
            moved = got.narrow(axis, left, size - abs(shift)) if size > 2 * abs(shift) else None
            if moved is not None and _is_close(
                moved, truth.narrow(axis, right, size - abs(shift)), closeness
            ):
                yield f"elements stand {shift:+d} from their place along axis {axis}"
        if size > 1 and _is_close(got.flip(axis), truth, closeness):
            yield f"elements are in the opposite order along axis {axis}"
    is_square = truth.ndim > 1 and truth.shape[-1] == truth.shape[-2] > 1
    if is_square and _is_close(got.mT, truth, closeness):
        yield "the last two axes are swapped"


def _parts(truth: torch.Tensor, got: torch.Tensor, closeness: float) -> Iterator[str]:
    """What holds for a part of the elements, the others being right."""
    scale = sqrt(float(truth.square().mean()))
    wrong = ~((got - truth).abs() <= closeness * scale + closeness * truth.abs())
    if not bool(wrong.any()) or bool(wrong.all()):
        return
    values = got[wrong]
    is_one = bool((values == values[0]).all()) or bool(values.isnan().all())
    what = f"; they are all {float(values[0]):g}, as if never computed" if is_one else ""
    for axis, size in enumerate(truth.shape):
        others = [other for other in range(truth.ndim) if other != axis]
        line = wrong.any(others) if others else wrong
        places = line.nonzero().flatten()
        first, last = int(places[0]), int(places[-1])
        # Most of an axis is no part of it: such results are wrong as a whole.
        is_block = len(places) == last - first + 1 <= size / 2
        if is_block and first > 0 and last == size - 1:
            yield f"only elements from {first} to the end of axis {axis} ({size}) are wrong{what}"
        elif is_block and first == 0 and last < size - 1:
            yield f"only the first {last + 1} of {size} elements of axis {axis} are wrong{what}"
    if is_one:
        yield f"{int(wrong.sum())} of {wrong.numel()} elements are wrong{what}"


def _is_close(got: torch.Tensor, expected: torch.Tensor, closeness: float) -> bool:
    return float((got - expected).norm()) <= closeness * float(expected.norm())


def _known_as(factor: float, truth: torch.Tensor) -> str:
    """Where a factor may come from: the size of an axis, or its root."""
    sizes = [size for size in dict.fromkeys(truth.shape) if size > 1]
    known = [(float(size), f"the size {size} of an axis") for size in sizes]
    known += [(sqrt(size), f"the square root of {size}") for size in sizes]
    for value, name in known:
        if abs(factor / value - 1) < 1e-3:
            return f" ({value:g} is {name})"
        if abs(factor * value - 1) < 1e-3:
            return f" (one over {value:g}, {name})"
    return ""
