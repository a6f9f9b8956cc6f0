"""The kernel interpreted again in other forms: with some of its roundings only, or otherwise.

All runs are of the same programs on the same arguments, so that their results can be compared
with the truth and with each other where the truth is known.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from tilesmith.dtypes import F32
from tilesmith.interpreter.frame import prepare_function
from tilesmith.interpreter.observers import FEWEST, Sampling
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation
from tilesmith.ir.types import Value
from tilesmith.numerics.doctor.findings import DiagnosedCall, ErrorSources, Sensitivity
from tilesmith.numerics.oracle import as_on_device, work_out_reference
from tilesmith.numerics.reference_setup import needs_all_programs
from tilesmith.numerics.tolerance import rms
from tilesmith.passes.roundings import Rounding, find_roundings, keep_roundings, widen_floats

Evaluators = Mapping[type[Operation], Callable[[Any, Any], Any]]
Results = dict[str, torch.Tensor]


_SLOW_S = 4.0
"""A reference that takes longer is too slow to be repeated a dozen times."""
LEAST_SHARE = 0.01
"""Of the mean square error: roundings below are not worth a line."""
MAX_GROUPS = 32
"""Roundings that are left out one by one; of more, those of the narrowest types are."""
_SINGLED_OUT = 0.05
"""Share of all fp32 arithmetic together from which on it is looked at line by line."""


class TooSlowError(Exception):
    """Reruns would take too long; says how long."""


class Reruns:
    """Runs forms of a kernel's function; results come by parameter, in fp64."""

    def __init__(self, subject: DiagnosedCall) -> None:
        self._subject = subject = _affordable(subject)
        self.function = as_on_device(subject.function, subject.arguments)
        """As the kernel is written, with the roundings of the device."""
        tensors = subject.launch_reference.tensors
        floats = [name for name, tensor in tensors.items() if tensor.native.is_floating_point()]
        self.dtypes = {name: tensors[name].native.dtype for name in floats}
        self.truth: Results = {name: tensors[name].truth for name in floats}
        self.native: Results = {name: tensors[name].native.to(torch.float64) for name in floats}
        self._known = {
            name: tensors[name].written & self.truth[name].isfinite() & self.native[name].isfinite()
            for name in floats
        }

    def with_roundings(self, kept: Collection[Value]) -> Results:
        """Everything in fp64 but for these values, which are rounded as the kernel does."""
        return self.wide(widen_floats(keep_roundings(self.function, kept)))

    def wide(self, function: Function, evaluators: Evaluators | None = None) -> Results:
        """What an fp64 form of the function gives, with other ways to evaluate some ops."""
        copies = self._subject.copies(is_wide=True)
        sampling = self._run(function, copies, evaluators or {})
        for name in self.truth:
            self._known[name] &= sampling.mask_of(copies[name]) & copies[name].isfinite()
        return {name: copies[name] for name in self.truth}

    def as_written(self, evaluators: Evaluators) -> None:
        """Run the function itself, for what its evaluators see."""
        self._run(self.function, self._subject.copies(is_wide=False), evaluators)

    def _run(self, function: Function, copies: Results, evaluators: Evaluators) -> Sampling:
        prepared = replace(prepare_function(function), evaluators=evaluators)
        sampling = self._subject.sampling()
        self._subject.interpret(prepared, copies, sampling)
        return sampling

    def known(self, name: str, values: torch.Tensor) -> torch.Tensor:
        """Of one tensor, the elements that all runs so far have a finite value for."""
        return values[self._known[name]]

    def known_mask(self, name: str) -> torch.Tensor:
        """Of one tensor, which elements those are."""
        return self._known[name]

    def distance(self, first: Results, second: Results, name: str) -> float:
        """Root mean square of the differences of two results."""
        return rms(self.known(name, (first[name] - second[name]).abs()))


def _affordable(subject: DiagnosedCall) -> DiagnosedCall:
    """The subject, or fewer of its programs where a dozen runs of all would take too long."""
    reference, oracle = subject.launch_reference, subject.oracle
    if reference.seconds <= _SLOW_S:
        return subject
    if needs_all_programs(subject.function):
        raise TooSlowError(f"it would take a dozen runs of {reference.seconds:.0f} s")
    fewer = max(FEWEST, int(oracle.max_programs * _SLOW_S / reference.seconds))
    oracle = replace(oracle, max_programs=fewer)
    arguments, sizes = subject.arguments, subject.sizes
    again = work_out_reference(subject.function, arguments, sizes, oracle)
    return replace(subject, oracle=oracle, launch_reference=again)


@dataclass(frozen=True)
class _Group:
    """Roundings on one line to one type: they are left out together."""

    members: tuple[Rounding, ...]

    @property
    def values(self) -> set[Value]:
        return {member.value for member in self.members}

    @property
    def is_sum(self) -> bool:
        return self.members[0].is_sum

    def is_result_of(self, output: str) -> bool:
        return any(output in member.results for member in self.members)

    def describe(self, output: str, share: float) -> Sensitivity:
        first = self.members[0]
        loc = first.op.loc
        names = [member.name for member in self.members if member.name]
        line = linecache.getline(loc.file, loc.line).strip()
        return Sensitivity(
            names[0] if names else "", first.dtype.name, str(loc), line, share, output
        )


def find_sources(reruns: Reruns) -> tuple[ErrorSources, ...]:
    """The sources of the error of each float tensor that the kernel writes."""
    experiments = _Experiments(reruns, find_roundings(reruns.function))
    return tuple(experiments.sources(name) for name in reruns.truth)


class _Experiments:
    """The runs, each made once for all outputs."""

    def __init__(self, reruns: Reruns, roundings: tuple[Rounding, ...]) -> None:
        self._reruns = reruns
        self._all = {rounding.value for rounding in roundings}
        groups = _group(roundings)
        narrow = [group for group in groups if group.members[0].dtype != F32]
        plain = [g for g in groups if g.members[0].dtype == F32 and not g.is_sum]
        wide_sums = [g for g in groups if g.members[0].dtype == F32 and g.is_sum]
        self._as_rounded = reruns.with_roundings(self._all)
        self._exact_sums = self._without(g for g in groups if g.is_sum)
        self._left_out = [(group, self._without([group])) for group in narrow[:MAX_GROUPS]]
        without_plain = self._without(plain) if plain else self._as_rounded
        if plain and any(self._share(without_plain, x) > _SINGLED_OUT for x in reruns.truth):
            rest = plain[: MAX_GROUPS - len(self._left_out)]
            self._left_out += [(group, self._without([group])) for group in rest]
        if wide_sums and self._sums_matter():
            self._left_out += [(group, self._without([group])) for group in wide_sums[:MAX_GROUPS]]

    def sources(self, output: str) -> ErrorSources:
        reruns = self._reruns
        truth = reruns.truth[output]
        scale = rms(reruns.known(output, truth.abs()))
        unit = scale or 1.0
        rounded = truth.to(reruns.dtypes[output]).to(torch.float64)
        found = [
            (group.is_sum, group.describe(output, self._share(result, output)))
            for group, result in self._left_out
            if not group.is_result_of(output)
        ]
        # Where the order inside of sums matters, not their type, the longest known one is named.
        sums = sorted((s for is_sum, s in found if is_sum), key=lambda one: -one.share)
        leading = tuple(sums[:1]) if sums and sums[0].share < LEAST_SHARE else _important(sums)
        return ErrorSources(
            output,
            scale,
            self._error(reruns.native, output) / unit,
            rms(reruns.known(output, (rounded - truth).abs())) / unit,
            reruns.distance(reruns.native, self._exact_sums, output) / unit,
            _important(s for is_sum, s in found if not is_sum),
            leading,
        )

    def _without(self, groups: Iterable[_Group]) -> Results:
        left_out = {value for group in groups for value in group.values}
        return self._reruns.with_roundings(self._all - left_out)

    def _error(self, results: Results, output: str) -> float:
        return self._reruns.distance(results, self._reruns.truth, output)

    def _share(self, result: Results, output: str) -> float:
        """What of the kernel's mean square error goes away."""
        native = self._error(self._reruns.native, output) ** 2
        if native == 0.0:
            return 0.0
        gone = self._error(self._as_rounded, output) ** 2 - self._error(result, output) ** 2
        return max(0.0, min(1.0, gone / native))

    def _sums_matter(self) -> bool:
        reruns = self._reruns
        for output in reruns.truth:
            total = self._error(reruns.native, output)
            part = reruns.distance(reruns.native, self._exact_sums, output)
            if total and (part / total) ** 2 > _SINGLED_OUT:
                return True
        return False


def _group(roundings: tuple[Rounding, ...]) -> list[_Group]:
    found: dict[tuple[str, int, str, bool], list[Rounding]] = {}
    for rounding in roundings:
        loc = rounding.op.loc
        key = (loc.file, loc.line, rounding.dtype.name, rounding.is_sum)
        found.setdefault(key, []).append(rounding)
    groups = [_Group(tuple(members)) for members in found.values()]
    return sorted(groups, key=lambda group: group.members[0].dtype.precision)


def _important(found: Iterable[Sensitivity]) -> tuple[Sensitivity, ...]:
    kept = [one for one in found if one.share >= LEAST_SHARE]
    return tuple(sorted(kept, key=lambda one: -one.share))
