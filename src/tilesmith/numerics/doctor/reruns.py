"""The kernel interpreted again in other forms: with some of its roundings only, or otherwise.

Such runs are of the same programs on the same arguments, so that results can be compared with the
truth and with each other. The inputs that an element depends on are found by running its program
with NaN everywhere else; an axis is narrowed to one index where that makes no difference.
"""

from __future__ import annotations

import linecache
import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from tilesmith.analysis.effects import tensors_read
from tilesmith.dtypes import F32
from tilesmith.interpreter.frame import prepare_function
from tilesmith.interpreter.observers import FEWEST, Sampling
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation
from tilesmith.ir.types import Value
from tilesmith.numerics.doctor.findings import (
    DependedInput,
    DiagnosedCall,
    ErrorSources,
    ErrorStatistics,
    Sensitivity,
)
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


FEW = 4
"""So many values are shown one by one."""
Index = tuple[int, ...]
Region = tuple[int | slice, ...]
"""One index or all, for each axis of a tensor."""


@dataclass(frozen=True)
class Element:
    """One element of an output."""

    output: str
    index: Index


def with_inputs(
    statistics: Sequence[ErrorStatistics], subject: DiagnosedCall, time_limit_s: float
) -> list[ErrorStatistics]:
    """The same, with what the worst elements depend on, as far as time allows."""
    elements = _by_rank(statistics, subject)
    reference = subject.launch_reference
    # To find the programs of the elements takes about as long as the reference took.
    if not elements or reference.reason or reference.seconds > 2 * time_limit_s:
        return list(statistics)
    end = time.perf_counter() + time_limit_s
    finder = _InputFinder(subject, elements)
    found: dict[Element, tuple[DependedInput, ...]] = {}
    for element in elements:
        if time.perf_counter() < end:
            found[element] = tuple(finder.inputs_of(element))
    return [
        replace(
            item,
            worst=tuple(
                replace(worst, inputs=found.get(Element(item.output, worst.index), ()))
                for worst in item.worst
            ),
        )
        for item in statistics
    ]


def _by_rank(statistics: Sequence[ErrorStatistics], subject: DiagnosedCall) -> list[Element]:
    """The worst of every output first; each element once."""
    ranked = [
        (rank, Element(item.output, worst.index))
        for item in statistics
        if _is_launch_output(item.output, subject)
        for rank, worst in enumerate(item.worst)
    ]
    return list(dict.fromkeys(element for _, element in sorted(ranked, key=lambda x: x[0])))


def _is_launch_output(output: str, subject: DiagnosedCall) -> bool:
    """Not another view of what was written, nor computed from it by host code."""
    known, wanted = subject.launch_reference.tensors, subject.reference.tensors
    return output in known and known[output].truth.shape == wanted[output].truth.shape


class _InputFinder:
    """Runs single programs of a subject, in fp64."""

    def __init__(self, subject: DiagnosedCall, elements: Sequence[Element]) -> None:
        self._subject = subject
        self._prepared = prepare_function(widen_floats(subject.function))
        self._owners: dict[Element, list[list[int]] | None] = dict.fromkeys(elements)
        """The program of each element; None where it takes all programs."""
        self._values: dict[Element, float] = {}
        self._run_once()

    def inputs_of(self, element: Element) -> Iterator[DependedInput]:
        """What an element depends on, among tensors of floats that are only read."""
        if element not in self._values:
            return
        for name in self._inputs():
            tensor = self._subject.arguments[name]
            assert isinstance(tensor, torch.Tensor)
            nothing = torch.full_like(tensor, math.nan)
            if not self._is_same_with(element, {name: nothing}):
                region = self._narrow(element, name, tensor)
                yield _describe(name, region, tensor)

    def _narrow(self, element: Element, name: str, tensor: torch.Tensor) -> Region:
        region: list[int | slice] = [slice(None)] * tensor.dim()
        shape = self._subject.launch_reference.tensors[element.output].truth.shape
        for axis, length in enumerate(tensor.shape):
            own = {i: None for i, extent in zip(element.index, shape) if extent == length}
            for index in own if length > 1 else ():
                narrower = (*region[:axis], index, *region[axis + 1 :])
                rest = torch.full_like(tensor, math.nan)
                rest[narrower] = tensor[narrower]
                if self._is_same_with(element, {name: rest}):
                    region[axis] = index
                    break
        return tuple(region)

    def _is_same_with(self, element: Element, replaced: Mapping[str, torch.Tensor]) -> bool:
        copies = self._subject.copies(is_wide=True)
        sampling = Sampling(None, chosen=self._owners[element])
        self._subject.interpret(self._prepared, {**replaced, **copies}, sampling)
        return float(copies[element.output][element.index]) == self._values[element]

    def _run_once(self) -> None:
        """Find each element's program and its value, in one run of all."""
        copies, everything = self._subject.copies(is_wide=True), self._subject.sampling()
        self._subject.interpret(self._prepared, copies, everything)
        self._values = {
            e: float(copies[e.output][e.index])
            for e in self._owners
            if bool(everything.mask_of(copies[e.output])[e.index])
        }
        if needs_all_programs(self._subject.function) or len(everything.done) > 1:
            return
        copies = self._subject.copies(is_wide=True)
        for program in everything.done[0]:
            single = Sampling(None, chosen=[[program]])
            self._subject.interpret(self._prepared, copies, single)
            for e in self._values:
                if bool(single.mask_of(copies[e.output])[e.index]):
                    self._owners[e] = [[program]]

    def _inputs(self) -> list[str]:
        """Tensors that are only read, and can hold NaN."""
        written = self._subject.copies(is_wide=True)
        names = [n for n in tensors_read(self._subject.function) if n not in written]
        tensors = {name: self._subject.arguments[name] for name in names}
        return [
            name
            for name, x in tensors.items()
            if isinstance(x, torch.Tensor) and x.is_floating_point() and x.itemsize > 1
        ]


def _describe(name: str, region: Region, tensor: torch.Tensor) -> DependedInput:
    places = ", ".join(":" if isinstance(i, slice) else str(i) for i in region)
    values = tensor[region].double().flatten()
    if values.numel() <= FEW:
        text = ", ".join(f"{value:.9g}" for value in values.tolist())
    else:
        size = values.abs()
        largest = float(size.max())
        text = f"{values.numel()} values, root mean square {rms(size):.3g}, largest {largest:.3g}"
    return DependedInput(f"{name}[{places}]" if places else name, text)
