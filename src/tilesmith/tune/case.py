"""What a search measures candidates on, and what functions of the user say of its results.

Those run in the user's own process, and only on candidates that a runner has run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilesmith.jit.bound_kernel import BoundKernel
from tilesmith.lab.workload.results import copy_arguments
from tilesmith.store.outcome import Candidate
from tilesmith.tune.options import TuneOptions


@dataclass(frozen=True)
class Case:
    """A bound kernel with the arguments to measure it on."""

    bound: BoundKernel
    args: tuple[Any, ...]


def make_user_check(
    cases: Sequence[Case], options: TuneOptions
) -> Callable[[Candidate], str] | None:
    """What finds faults by ``check(actual, expected)``; None if the user has no such function."""
    check = options.accuracy_check_fn
    if check is None:
        return None
    expected = [_expected(case, options) for case in cases]

    def find_fault(candidate: Candidate) -> str:
        for case, right in zip(cases, expected):
            actual = case.bound.compile_config(candidate.config)(*copy_arguments(case.args))
            fault = _ask(check, actual, right)
            if fault:
                return fault
        return ""

    return find_fault


def _expected(case: Case, options: TuneOptions) -> Any:
    copies = copy_arguments(case.args)
    if options.baseline_fn is not None:
        return options.baseline_fn(*copies)
    return case.bound.run_ref(*copies)


def _ask(check: Callable[[Any, Any], Any], actual: Any, expected: Any) -> str:
    """A check says no by raising or by returning False."""
    try:
        answer = check(actual, expected)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "the accuracy check says no" if answer is False else ""
