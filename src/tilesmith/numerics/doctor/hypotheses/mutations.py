"""Small changes of a kernel after which it gives, in fp64, what another implementation gives.

A wrong epsilon, a factor that is missing or twice there, ``<`` for ``<=``: each constant, number
among the arguments and comparison is changed in turn, until a change explains all elements or the
time is over. The line that was changed is where the two formulas differ.
"""

from __future__ import annotations

import linecache
from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import e, isfinite, log2, sqrt
from time import monotonic

import torch

from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.elementwise import Elementwise
from tilesmith.ir.ops.indexing import Full
from tilesmith.ir.traversal import rewrite_function, walk_function
from tilesmith.numerics.doctor.findings import DiagnosedCall
from tilesmith.numerics.doctor.reruns import Reruns
from tilesmith.passes.roundings import widen_floats

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


def find_mutation(subject: DiagnosedCall, target: Mapping[str, torch.Tensor]) -> str:
    """The change after which the kernel gives ``target`` (fp64, by tensor); empty if none is found.

    Raises what running a kernel in fp64 raises.
    """
    truth = Reruns(subject).truth
    if not target or any(x.shape != getattr(truth.get(n), "shape", ()) for n, x in target.items()):
        return ""
    until = monotonic() + MOST_SECONDS
    for text, changed, function in (*_of_arguments(subject), *_of_ops(subject)):
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
        if not got.numel() >= MOST_KNOWN * counts[name] > 0 or float(
            (got - expected).norm()
        ) > SAME * float(expected.norm()):
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
