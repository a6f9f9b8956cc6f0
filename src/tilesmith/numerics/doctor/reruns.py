"""The kernel interpreted again in other forms: with some of its roundings only, or otherwise.

All runs are of the same programs on the same arguments, so that their results can be compared
with the truth and with each other where the truth is known.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

import torch

from tilesmith.interpreter.prepare import prepare_function
from tilesmith.interpreter.run import run_prepared
from tilesmith.interpreter.sampling import FEWEST, Sampling
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation
from tilesmith.ir.values import Value
from tilesmith.numerics.doctor.findings import Subject
from tilesmith.numerics.float_standard import rms
from tilesmith.numerics.oracle import as_on_device, work_out_reference
from tilesmith.numerics.reference_tiles import needs_all_programs
from tilesmith.numerics.scratch_tensors import copy_written
from tilesmith.passes.keep_roundings import keep_roundings
from tilesmith.passes.widen_floats import widen_floats

Evaluators = Mapping[type[Operation], Callable[[Any, Any], Any]]
Results = dict[str, torch.Tensor]


_SLOW_S = 4.0
"""A reference that takes longer is too slow to be repeated a dozen times."""


class TooSlowError(Exception):
    """Reruns would take too long; says how long."""


class Reruns:
    """Runs forms of a kernel's function; results come by parameter, in fp64."""

    def __init__(self, subject: Subject) -> None:
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
        subject = self._subject
        copies = copy_written(subject.function, subject.arguments, is_wide=True)
        sampling = self._run(function, copies, evaluators or {})
        for name in self.truth:
            self._known[name] &= sampling.mask_of(copies[name]) & copies[name].isfinite()
        return {name: copies[name] for name in self.truth}

    def as_written(self, evaluators: Evaluators) -> None:
        """Run the function itself, for what its evaluators see."""
        subject = self._subject
        copies = copy_written(subject.function, subject.arguments, is_wide=False)
        self._run(self.function, copies, evaluators)

    def _run(self, function: Function, copies: Results, evaluators: Evaluators) -> Sampling:
        subject = self._subject
        sizes = {**_runtime_sizes(subject), **subject.sizes}
        prepared = replace(prepare_function(function), evaluators=evaluators)
        is_whole = needs_all_programs(subject.function)
        limit = None if is_whole else subject.oracle.max_programs
        sampling = Sampling(limit, subject.oracle.seed)
        with torch.no_grad():
            arguments = {**subject.arguments, **copies}
            run_prepared(prepared, arguments, sizes, sampling=sampling)
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


def _affordable(subject: Subject) -> Subject:
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


def _runtime_sizes(subject: Subject) -> dict[str, int]:
    return {size.name: int(subject.arguments[size.name]) for size in subject.function.sizes}
