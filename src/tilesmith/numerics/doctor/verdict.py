"""What an examination comes down to: one kind of cause, in words, with its evidence.

Races come first: nothing else means anything where results depend on chance. Then implementations
that are wrong by the standard derived from types and sums. If all are right, what is left is where
the kernel's own error comes from, which is what two right results differ by.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilesmith.dtypes import F32
from tilesmith.numerics.doctor.causes import Causes, order_dependence
from tilesmith.numerics.doctor.errors import (
    closest_to_truth,
    compare_pairs,
    justified_tolerance,
)
from tilesmith.numerics.doctor.findings import (
    AS_WRITTEN,
    OURS,
    CauseKind,
    ErrorSources,
    Examination,
    Finding,
    Scope,
    Verdict,
    WorstElement,
)
from tilesmith.numerics.doctor.report import Diagnosis
from tilesmith.numerics.doctor.wrong_results import blame

ILL_CONDITIONED = 256.0
"""Lost digits count from here on: eight bits."""
BEYOND_RESULT = 4.0
"""Times the rounding of the result: below, nothing is lost that the type could hold."""
OTHERWISE = 3.0
"""Times the error of the source, interpreted: the compiled kernel must add up otherwise."""
LEAST_EXCESS = 0.25
"""Share of the squared error beyond the rounding of the result that is worth a cause."""


def explain(examination: Examination, causes: Causes) -> Diagnosis:
    """The verdict on everything measured."""
    decided = _decide(examination, causes)
    others = [finding for finding in _findings(examination, causes) if finding is not decided]
    verdict = Verdict(
        decided.kind,
        decided.text,
        closest_to_truth(examination),
        justified_tolerance(examination, causes.sources),
    )
    listed = [found for source in causes.sources for found in (*source.roundings, *source.sums)]
    return Diagnosis(examination, verdict, (decided, *others), tuple(listed))


def _decide(examination: Examination, causes: Causes) -> Finding:
    """The first of the causes that is there."""
    races = [causes.races.finding, *(f for f in causes.unsteady if f.kind is not CauseKind.ORDER)]
    for race in races:
        if race is not None:
            return race
    if not examination.subject.reference.tensors:
        reason = examination.subject.reference.reason
        return Finding(
            CauseKind.UNKNOWN, f"There is nothing to judge by: {reason or 'no outputs'}."
        )
    wrong = [s for s in examination.statistics if s.fault and s.implementation != AS_WRITTEN]
    if wrong:
        return blame(examination, wrong)
    if causes.unsteady:
        return causes.unsteady[0]
    return _explain_right(examination, causes)


def _explain_right(examination: Examination, causes: Causes) -> Finding:
    source = causes.worst_source(examination.subject.reference.tensors)
    cancelling = _find_cancelling(causes, source) if source is not None else None
    if cancelling is not None:
        return cancelling
    ours = examination.statistics_of(OURS)
    for found in ours:
        if found.lost is not None:
            return _name_overflow(found.output, found.lost, causes.overflow)
    if source is None:
        text = causes.unknown and f" Where errors come from is not known: {causes.unknown}."
        return Finding(CauseKind.FINE, f"All results are what types and sums justify.{text}")
    compiled = max((s.relative_norm for s in ours if s.output == source.output), default=0.0)
    reference = examination.subject.launch_reference
    is_added_to = any(tensor.is_accumulated for tensor in reference.tensors.values())
    # A loop that carries a float adds up too, one term a turn.
    has_sums = reference.sum_length > 1 or is_added_to or bool(source.sums)
    return _explain_source(source, compiled, has_sums=has_sums)


def _explain_source(source: ErrorSources, compiled: float, *, has_sums: bool) -> Finding:
    """Where the error comes from; ``compiled`` is that of the kernel as it runs."""
    is_otherwise = compiled > OTHERWISE * source.total
    if is_otherwise and has_sums:
        text = (
            f"No result is wrong. The compiled kernel adds up in another order than its source, "
            f"interpreted: the error of `{source.output}` is {compiled:.2g}, not "
            f"{source.total:.2g} (relative norm), within what sums of that length justify."
        )
        return Finding(CauseKind.ORDER, text, (_budget_text(source),), OURS)
    excess = 1.0 - (source.of_result / source.total) ** 2
    if excess < LEAST_EXCESS and not is_otherwise:
        text = (
            f"All results are right: their errors are the rounding to the type of `{source.output}`"
            " that no implementation can avoid. A tolerance that they fail is too tight."
        )
        return Finding(CauseKind.FINE, text, (_budget_text(source),))
    if source.of_roundings >= source.of_sums and source.roundings:
        return _name_rounding(source)
    if has_sums and source.of_sums > source.of_roundings:
        return _name_sum(source)
    what = "has no single cause" if has_sums else "is that of functions such as exp or erf"
    text = f"All results are right; the error of `{source.output}` {what}."
    return Finding(CauseKind.FINE, text, (_budget_text(source),))


def _find_cancelling(causes: Causes, source: ErrorSources) -> Finding | None:
    condition = causes.cancellation.of(source.output)
    if condition is None or condition.overall < ILL_CONDITIONED:
        return None
    if source.total < BEYOND_RESULT * source.of_result:
        return None
    line = causes.cancellation.worst_line
    cause, where = f"A small change of an input is a large one of `{source.output}`", ""
    if line is not None and line.ratio > 2.0:
        cause = f"Large terms cancel on the way to `{source.output}`"
        where = f" At {line.location}, `{line.line}`, terms are {line.ratio:.2g} times their sum."
    text = (
        f"{cause}: roundings are amplified {condition.overall:.2g} times.{where} Another formula "
        "is needed, not another tolerance."
    )
    evidence = (
        f"every value disturbed by one part in 2**28 changes the result {condition.overall:.2g} "
        "times as much",
        _budget_text(source),
    )
    return Finding(CauseKind.CANCELLATION, text, evidence, OURS)


def _name_overflow(output: str, element: WorstElement, line: str) -> Finding:
    place = f"{output}[{', '.join(map(str, element.index))}]" if element.index else output
    where = f", first at {line}" if line else ""
    text = (
        f"The kernel gives {element.got} for {place}, which is exactly {element.expected:.6g}, and "
        f"so does its source, interpreted: a value on the way is none that its type can hold{where}"
    )
    return Finding(CauseKind.BUG, f"{text}.", (), OURS)


def _name_rounding(source: ErrorSources) -> Finding:
    first = source.roundings[0]
    name = f"`{first.variable}` " if first.variable else "a value "
    text = (
        f"No result is wrong. The kernel rounds {name}to {first.dtype} at {first.location}, "
        f"`{first.line}`: without that, {first.share:.0%} of the squared error of "
        f"`{source.output}` would be gone. Implementations that round elsewhere differ by as much."
    )
    return Finding(CauseKind.ROUNDING, text, (_budget_text(source),), OURS)


def _name_sum(source: ErrorSources) -> Finding:
    text = f"No result is wrong. The error of `{source.output}` is that of adding up many terms"
    if source.sums:
        first = source.sums[0]
        text += f" in {first.dtype}, at {first.location}: `{first.line}`"
    text += ". Implementations that add in another order differ by as much."
    if source.sums and source.sums[0].dtype != F32.name:
        text += " A sum carried in fp32 would be closer to the truth."
    return Finding(CauseKind.ORDER, text, (_budget_text(source),), OURS)


def _budget_text(source: ErrorSources) -> str:
    return (
        f"error of `{source.output}` as written, relative: {source.total:.2g}; of it rounding of "
        f"the result {source.of_result:.2g}, of intermediates {source.of_roundings:.2g}, "
        f"sums {source.of_sums:.2g}"
    )


def _findings(examination: Examination, causes: Causes) -> Iterator[Finding]:
    """What there is to say besides the verdict."""
    if causes.races.finding is not None:
        yield causes.races.finding
    yield from causes.unsteady
    yield from describe_steadiness(examination, causes)
    yield from compare_pairs(examination, causes.sources)
    for condition in causes.cancellation.conditions:
        text = f"`{condition.output}` amplifies roundings {condition.overall:.2g} times"
        detail = f"in the middle {condition.typical:.2g}"
        if condition.worst:
            detail += f", at most {condition.highest:.2g} at {condition.worst}"
        yield Finding(CauseKind.FINE, text, (detail,), OURS)


def describe_steadiness(examination: Examination, causes: Causes) -> Iterator[Finding]:
    """One statement about the kernel: deterministic, or why not."""
    if causes.races.finding is not None:
        return
    agreement = examination.agreement(OURS, Scope.REPEATS)
    dependence = order_dependence(examination.subject)
    if dependence:
        yield Finding(CauseKind.ORDER, f"not deterministic: {dependence}", (), OURS)
    elif agreement is not None and agreement.is_same:
        found = "the kernel is deterministic"
        runs = f"{agreement.num_runs} runs agree bit for bit"
        if agreement.num_runs < 2:
            found, runs = "nothing speaks against the kernel being deterministic", "it ran once"
        skipped = causes.races.skipped
        detected = f"could not look: {skipped}" if skipped else "finds nothing"
        detector = f"the race detector of the interpreter {detected}"
        others = "no program adds floats to elements of another"
        yield Finding(CauseKind.FINE, found, (runs, detector, others), OURS)
