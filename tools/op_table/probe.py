"""Runs a torch function on device values: a kernel of one program on whole tensors.

A function and samples go in; for each backend and sample a ``Finding`` comes out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch

import tilesmith
import tilesmith.language as hl
from tilesmith import exc
from tilesmith.backends.triton.build import compile_artifact
from tools.op_table.judge import exact_results, explain_error, explain_zeros, tensors_of
from tools.op_table.operators import Operator
from tools.op_table.samples import Sample

HOST_BACKENDS = ("reference", "cpu", "triton")
"""``triton`` makes the source, ``compiled`` a cubin of it too; both need no GPU, ``cuda`` does."""


_UNCLEAR = (exc.InternalError, exc.TorchOpTracingError)
"""Errors that do not say what the user should do."""


_OF_ORDERED_ROWS = ("searchsorted",)
"""A row with special values somewhere in it is not sorted: eager's result is then any."""
_ROUNDED_INSIDE = ("nn.functional.scaled_dot_product_attention",)
"""Weights are rounded to the operands' type before the second product, as on GPUs."""
_WITHOUT_VALUES = ("empty", "rand", "bernoulli", "dropout")
"""Only the shape and type of their results are eager's: the elements are random or anything."""
_ANY_OF_EQUAL = ("topk", "kthvalue")
"""Their indices may be those of any of several equal elements."""


class Verdict(Enum):
    """How a call went; the values are the marks in the recorded results."""

    PASS = "p"
    WRONG = "w"
    UNSUPPORTED = "u"
    CRASH = "c"
    NOT_APPLICABLE = "-"


@dataclass(frozen=True)
class Finding:
    """The verdict on a call and the reason for it."""

    verdict: Verdict
    reason: str = ""


class UnlikeEagerError(Exception):
    """A result's shape, element type or number differs from eager's."""


@dataclass(frozen=True)
class Trial:
    """One call: its inputs, what eager makes of them, and in float64."""

    fn: Callable[..., Any]
    sample: Sample
    expected: list[torch.Tensor]
    exact: list[Any] | None
    num_terms: int
    num_judged: int
    """How many of the results have elements that eager defines."""
    has_signed_zeros: bool
    is_rounded_inside: bool


def prepare(operator: Operator, sample: Sample) -> Trial | str:
    """A trial, or why the call makes no sense on a tile."""
    fn = operator.fn
    if sample.is_special and operator.label in _OF_ORDERED_ROWS:
        return "special values have no place in a sorted row"
    try:
        expected = tensors_of(sample.map_tensors(torch.clone).call(fn))
        again = tensors_of(sample.map_tensors(torch.clone).call(fn))
    except (RuntimeError, TypeError, ValueError, NotImplementedError, IndexError) as error:
        return f"eager refuses it: {str(error).splitlines()[0][:80]}"
    if not expected or not all(isinstance(leaf, torch.Tensor) for leaf in expected):
        return "the result is no tensor"
    if any(leaf.is_complex() or leaf.numel() == 0 for leaf in expected):
        return "a complex or empty result"
    has_values = not any(word in operator.label for word in _WITHOUT_VALUES)
    is_same = all(torch.equal(a, b) or bool(a.isnan().any()) for a, b in zip(expected, again))
    if has_values and not is_same:
        return "the result is random"
    num_terms = 1 if operator.is_elementwise else max(2, *(t.numel() for t in sample.tensors()))
    exact = exact_results(fn, sample, is_elementwise=operator.is_elementwise)
    num_judged = 1 if operator.label in _ANY_OF_EQUAL else len(expected)
    has_signed_zeros = operator.is_elementwise and "relu" not in operator.label
    num_judged *= has_values
    is_rounded_inside = operator.label in _ROUNDED_INSIDE
    return Trial(
        fn, sample, expected, exact, num_terms, num_judged, has_signed_zeros, is_rounded_inside
    )


def _probe(inputs, outputs, body):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    for _ in hl.grid(1):
        body(inputs, outputs)


def _kernel_body(trials: Sequence[Trial]) -> Callable[[Any, Any], None]:
    # A bound method of a list hides from the frontend what no kernel could take as an argument.
    trial_at = list(trials).__getitem__

    def body(inputs: Any, outputs: Any) -> None:
        for place, (tensors, results) in enumerate(zip(inputs, outputs)):
            trial = trial_at(place)
            remaining = iter(tensors)
            call = trial.sample.map_tensors(lambda _, left=remaining: _whole(next(left)))
            _store(tensors_of(call.call(trial.fn)), results)

    return body


def _whole(tensor: Any) -> Any:
    return tensor[(slice(None),) * tensor.ndim]


def _store(values: list[Any], results: Any) -> None:
    if len(values) != len(results):
        raise UnlikeEagerError(f"{len(values)} results, eager has {len(results)}")
    for value, result in zip(values, results):
        if not hasattr(value, "dtype"):
            raise UnlikeEagerError(f"a result is {value!r}, no tensor")
        if value.dtype != result.dtype:
            raise UnlikeEagerError(f"the result is {value.dtype}, in eager {result.dtype}")
        if tuple(value.shape) != tuple(result.shape):
            raise UnlikeEagerError(f"the shape is {value.shape}, in eager {tuple(result.shape)}")
        result[(slice(None),) * result.ndim] = value


def run_trials(trials: Sequence[Trial], backends: Sequence[str]) -> dict[str, list[Finding]]:
    """Findings by backend, one for each trial.

    All go through one kernel; only if that fails, each through its own.
    """
    together = _run_together(trials, backends)
    findings: dict[str, list[Finding]] = {}
    alone: dict[int, dict[str, Finding]] = {}
    for backend, found in together.items():
        if isinstance(found, list):
            findings[backend] = found
            continue
        for place, trial in enumerate(trials if len(trials) > 1 else ()):
            if place not in alone:
                results = run_trials([trial], backends)
                alone[place] = {name: result[0] for name, result in results.items()}
        findings[backend] = [alone[p][backend] for p in alone] or [found]
        if found.verdict is Verdict.CRASH:
            findings[backend][0] = found
    return findings


def _run_together(
    trials: Sequence[Trial], backends: Sequence[str]
) -> dict[str, list[Finding] | Finding]:
    device = "cuda" if "cuda" in backends else "cpu"
    inputs = [[t.to(device) for t in trial.sample.tensors()] for trial in trials]
    body = _kernel_body(trials)
    try:
        kernel = tilesmith.kernel(_probe, autotune_effort="none")
        bound = kernel.bind((inputs, _empty_results(trials, device), body))
    except Exception as error:
        failure = _failure(error)
        return dict.fromkeys(backends, failure)
    return {name: _attempt(name, bound, trials, (inputs, body, device)) for name in backends}


def _empty_results(trials: Sequence[Trial], device: str) -> list[list[torch.Tensor]]:
    return [[torch.zeros_like(t, device=device) for t in trial.expected] for trial in trials]


def _attempt(
    backend: str, bound: Any, trials: Sequence[Trial], call: tuple[Any, Any, str]
) -> list[Finding] | Finding:
    inputs, body, device = call
    outputs = _empty_results(trials, device)
    try:
        if backend == "triton":
            bound.to_triton_code(target="cuda:90")
            return [Finding(Verdict.PASS) for _ in trials]
        if backend == "compiled":
            compile_artifact(bound.to_artifact(target="cuda:90"))
            return [Finding(Verdict.PASS) for _ in trials]
        run = bound.run_ref if backend == "reference" else bound
        run(inputs, outputs, body)
    except Exception as error:
        return _failure(error)
    return [_judge(trial, [t.cpu() for t in outs]) for trial, outs in zip(trials, outputs)]


def _judge(trial: Trial, results: list[torch.Tensor]) -> Finding:
    exact = trial.exact or [None] * len(results)
    judged = list(zip(results, trial.expected, exact))[: trial.num_judged]
    for actual, eager, wide in judged:
        rounded = actual.dtype if trial.is_rounded_inside else None
        problem = explain_error(actual, eager, wide, trial.num_terms, rounded)
        if problem is None and trial.has_signed_zeros:
            problem = explain_zeros(actual, eager, wide)
        if problem is not None:
            return Finding(Verdict.WRONG, problem)
    return Finding(Verdict.PASS)


def _failure(error: Exception) -> Finding:
    if isinstance(error.__cause__, UnlikeEagerError):
        error = error.__cause__
    line = re.sub(r" at 0x[0-9a-f]+", "", (str(error).splitlines() or [""])[0])
    reason = f"{type(error).__name__}: {line[:160]}"
    if isinstance(error, UnlikeEagerError):
        return Finding(Verdict.WRONG, reason)
    is_clear = isinstance(error, exc.BaseError) and type(error) not in _UNCLEAR
    return Finding(Verdict.UNSUPPORTED if is_clear else Verdict.CRASH, reason)
