"""The inputs that an element depends on, found by running its program with NaN everywhere else.

An axis of an input is narrowed to one index of the element itself where that makes no difference.
What is left is what the element is made from.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from tilesmith.analysis.effects import tensors_read
from tilesmith.interpreter.frame import prepare_function
from tilesmith.interpreter.observers import Sampling
from tilesmith.numerics.doctor.findings import DependedInput, DiagnosedCall, ErrorStatistics
from tilesmith.numerics.reference_setup import needs_all_programs
from tilesmith.numerics.tolerance import rms
from tilesmith.passes.roundings import widen_floats

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
