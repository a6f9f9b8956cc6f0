"""One call that answers which of several results is wrong, and why.

Results are compared with the truth, and with each other bit for bit: over repeats, over configs,
over batch sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from typing import Any

import torch

from tilesmith.diagnostics.catalogue import BaseError
from tilesmith.frontend.containers import map_tensors, tensors_in
from tilesmith.jit.bound_kernel import BoundKernel
from tilesmith.jit.kernel import Kernel
from tilesmith.numerics.doctor.causes import find_causes
from tilesmith.numerics.doctor.diagnosed_call import make_subject, widened
from tilesmith.numerics.doctor.errors import Yardstick
from tilesmith.numerics.doctor.findings import (
    AS_WRITTEN,
    OURS,
    Agreement,
    CauseKind,
    DiagnosedCall,
    DiagnoseOptions,
    Examination,
    Outputs,
    Scope,
    Verdict,
    choose_config,
)
from tilesmith.numerics.doctor.host_run import WrongFormError, run_implementation, without_defaults
from tilesmith.numerics.doctor.report import Diagnosis
from tilesmith.numerics.doctor.reruns import with_inputs
from tilesmith.numerics.doctor.verdict import explain
from tilesmith.numerics.oracle import ReferenceTensor
from tilesmith.numerics.tolerance import bits_of, describe_index, ulp_distance
from tilesmith.schedule.config import Config

SAME_TRUTH = 2.0**-36
"""How close fp64 results of the same rows must be, relative to the largest."""
Change = Callable[[torch.Tensor], torch.Tensor]


class AgreementCount:
    """Counts elements in which runs differ from the first."""

    def __init__(self, first: Outputs) -> None:
        self._first = first
        self._different = {
            name: torch.zeros_like(tensor, dtype=torch.bool) for name, tensor in first.items()
        }
        self._num_runs = 1
        self._max_ulp = 0.0

    def add(self, outputs: Outputs) -> None:
        """One more run, of the same elements."""
        self._num_runs += 1
        for name, first in self._first.items():
            output = outputs[name]
            different = bits_of(output) != bits_of(first)
            if bool(different.any()):
                distance = _distance(output[different], first[different])
                self._max_ulp = max(self._max_ulp, distance)
                self._different[name] |= different

    def count_among(self, masks: Outputs) -> int:
        """Elements that differ and are among these."""
        return sum(int((self._different[name] & mask).sum()) for name, mask in masks.items())

    def result(self, implementation: str, over: Scope, labels: Sequence[str] = ()) -> Agreement:
        """The agreement over all results that were added."""
        return Agreement(
            implementation,
            over,
            self._num_runs,
            sum(int(mask.sum()) for mask in self._different.values()),
            sum(mask.numel() for mask in self._different.values()),
            self._max_ulp,
            self._first_different(),
            tuple(labels),
        )

    def _first_different(self) -> str:
        for name, mask in self._different.items():
            if mask.any():
                return describe_index(name, int(mask.flatten().int().argmax()), mask.shape)
        return ""


def compare_repeats(
    implementation: str, first: Outputs, others: Iterable[Outputs], unwritten: Outputs
) -> Agreement:
    """Compare further runs with the first; ``unwritten`` are elements that no program writes."""
    count = AgreementCount(first)
    for outputs in others:
        count.add(outputs)
    found = count.result(implementation, Scope.REPEATS)
    return replace(found, num_unwritten=count.count_among(unwritten))


def _distance(left: torch.Tensor, right: torch.Tensor) -> float:
    if left.is_floating_point():
        # Zeros of both signs are one value, though their bits differ.
        return float(ulp_distance(left, right).max())
    return float((left.double() - right.double()).abs().max())


@dataclass(frozen=True)
class Batch:
    """The arguments for another number of rows, the first of which are the same."""

    length: int
    args: tuple[Any, ...]


class BatchCheck:
    """Compares implementations over batch sizes; ``interpret`` makes the call of other ones."""

    def __init__(
        self, subject: DiagnosedCall, interpret: Callable[[tuple[Any, ...]], DiagnosedCall]
    ) -> None:
        self._subject = subject
        self._reference = subject.reference
        self._interpret = interpret

    def compare(self, name: str, function: Callable[..., Any], whole: Outputs) -> Agreement:
        """The rows of all batch sizes against those of the whole."""
        if isinstance(self._batches, str):
            return Agreement(name, Scope.BATCHES, 0, skipped=self._batches)
        length = self._batches[0].length
        rows = {n: x[:length] for n, x in whole.items() if self._has_rows(x)}
        count = AgreementCount(rows)
        for batch in self._batches:
            try:
                outputs = run_implementation(function, batch.args, self._subject.places)
            except Exception as error:
                first = str(error).partition("\n")[0]
                why = f"it cannot run {batch.length} rows: {first}"
                return Agreement(name, Scope.BATCHES, 0, skipped=why)
            count.add({name: outputs[name][:length] for name in rows})
        labels = [f"{n} rows" for n in (self._length, *(b.length for b in self._batches))]
        return count.result(name, Scope.BATCHES, labels)

    @cached_property
    def _length(self) -> int:
        """Rows of the whole: the leading extent of the first output that has one."""
        tensors = (known.native for known in self._reference.tensors.values())
        return next((x.size(0) for x in tensors if x.dim()), 0)

    def _has_rows(self, output: torch.Tensor) -> bool:
        return output.dim() > 0 and output.size(0) == self._length

    @cached_property
    def _batches(self) -> list[Batch] | str:
        """Batches whose rows can be compared with the whole's, or why there are none."""
        if not self._reference.tensors:
            return "there is no reference to tell whether rows depend on each other"
        if self._length < 2:
            return "there is only one row"
        # Tensors that may have a row per row of the output: all that could, or the first.
        fitting = [i for i, x in enumerate(tensors_in(self._subject.args)) if self._has_rows(x)]
        for chosen in filter(None, (fitting, fitting[:1] if len(fitting) > 1 else [])):
            small = self._batch(chosen, lambda x: x.detach()[: -(-x.size(0) // 2)].clone())
            large = self._batch(chosen, lambda x: torch.cat([x.detach()] * 2))
            if self._are_rows_alone(small):
                return [small, large]
        return "rows depend on each other, or arguments do not have a row each"

    def _batch(self, chosen: Sequence[int], change: Change) -> Batch:
        places = count()
        args = map_tensors(self._subject.args, lambda x: change(x) if next(places) in chosen else x)
        return Batch(change(torch.empty(self._length, 0)).size(0), args)

    def _are_rows_alone(self, small: Batch) -> bool:
        try:
            found = self._interpret(small.args).reference
        except (BaseError, RuntimeError, AssertionError, ValueError, IndexError):
            return False
        whole = self._reference.tensors
        rows = [name for name, known in whole.items() if self._has_rows(known.native)]
        return bool(rows) and all(
            name in found.tensors and _is_same(found.tensors[name], whole[name], small.length)
            for name in rows
        )


def _is_same(left: ReferenceTensor, right: ReferenceTensor, length: int) -> bool:
    """Whether the first rows are the same wherever both are known."""
    first, second = left.truth[:length], right.truth[:length]
    if first.shape != second.shape:
        return False
    both = left.written[:length] & right.written[:length]
    a, b = first[both].double().nan_to_num(), second[both].double().nan_to_num()
    return bool(a.numel()) and bool(((a - b).abs() <= SAME_TRUTH * b.abs().max()).all())


def diagnose(
    kernel: Kernel,
    args: Sequence[Any],
    against: Mapping[str, Callable[..., Any]] | None = None,
    options: DiagnoseOptions | None = None,
) -> Diagnosis:
    """Measure a kernel and other implementations against fp64, and say what differences mean.

    Args:
        kernel: the kernel.
        args: its arguments; they are not changed.
        against: other functions of the same arguments that return the same tensors, by name.
        options: how thorough to be.

    Example:
        ``print(diagnose(kernel, (x, y), {"eager": lambda x, y: x.T @ y}))``
    """
    chosen = options or DiagnoseOptions()
    with torch.no_grad():
        examination = _Doctor(kernel, tuple(args), against or {}, chosen).examine()
        if chosen.explain:
            return explain(examination, find_causes(examination))
        return Diagnosis(examination, Verdict(CauseKind.UNKNOWN, "Nobody has asked for causes."))


class _Doctor:
    """Measures all implementations of one call."""

    def __init__(
        self,
        kernel: Kernel,
        args: tuple[Any, ...],
        against: Mapping[str, Callable[..., Any]],
        options: DiagnoseOptions,
    ) -> None:
        for name in against:
            if name in (OURS, AS_WRITTEN):
                raise ValueError(f"{name!r} is taken: give the implementation another name")
        self._kernel = kernel
        self._options = options
        others = {name: without_defaults(f, kernel.signature) for name, f in against.items()}
        self._implementations: dict[str, Callable[..., Any]] = {OURS: kernel, **others}
        self._subject = self._interpreted(args)
        self._failures: dict[str, str] = {}

    def examine(self) -> Examination:
        """Run everything that was asked for."""
        reference = self._subject.reference
        yardstick = Yardstick(reference, self._options.num_worst)
        outputs: dict[str, Outputs] = {AS_WRITTEN: self._subject.as_written}
        agreements: list[Agreement] = []
        batches = BatchCheck(self._subject, self._interpreted)
        for name in self._implementations:
            found = self._try(name, outputs.get(OURS, {}), batches)
            if found is not None:
                outputs[name] = found[0]
                agreements += found[1]
        # The kernel first, what it is meant to do last: as one reads.
        names = [*(name for name in self._implementations if name in outputs), AS_WRITTEN]
        statistics = [s for name in names for s in yardstick.measure(name, outputs[name])]
        wrong = dict.fromkeys(s.implementation for s in statistics if s.fault)
        return Examination(
            self._subject,
            outputs,
            tuple(with_inputs(statistics, self._subject, self._options.inputs_time_limit_s)),
            tuple(agreements),
            self._failures,
            {name: found for name in wrong if (found := self._wide_run(name)) is not None},
        )

    def _interpreted(self, args: tuple[Any, ...]) -> DiagnosedCall:
        bound = self._kernel.bind(self._kernel.normalize_args(*args))
        return make_subject(self._kernel, args, choose_config(bound), self._options)

    def _run(self, function: Callable[..., Any], args: tuple[Any, ...] | None = None) -> Outputs:
        given = self._subject.args if args is None else args
        return run_implementation(function, given, self._subject.places)

    def _try(
        self, name: str, own: Outputs, batches: BatchCheck
    ) -> tuple[Outputs, list[Agreement]] | None:
        """Nobody's failure ends a diagnosis, except the kernel's own."""
        try:
            first = self._first_run(name, own)
            return first, list(self._agreements(name, first, batches))
        except Exception as error:
            if name == OURS:
                raise
            self._failures[name] = _in_one_line(error)
            return None

    def _first_run(self, implementation: str, own: Outputs) -> Outputs:
        """What it gives, in the form of what the kernel itself gave."""
        outputs = self._run(self._implementations[implementation])
        for name, known in self._subject.reference.tensors.items():
            if outputs[name].shape != known.native.shape:
                shape, wanted = list(outputs[name].shape), list(known.native.shape)
                raise WrongFormError(f"{name} has shape {shape}, expected {wanted}")
        for name, expected in own.items():
            found = (outputs[name].layout, outputs[name].device)
            if found != (expected.layout, expected.device):
                form = f"{expected.layout} on {expected.device}"
                raise WrongFormError(f"{name} is {found[0]} on {found[1]}, expected {form}")
        return outputs

    def _wide_run(self, name: str) -> Outputs | None:
        """The formula of another implementation, without its roundings if it has none of its own.

        Many accept no fp64, in many ways: then it is not known.
        """
        if name in (OURS, AS_WRITTEN):
            return None
        try:
            args = tuple(map(widened, self._subject.args))
            return self._run(self._implementations[name], args)
        except Exception:
            return None

    def _agreements(self, name: str, first: Outputs, batches: BatchCheck) -> Iterator[Agreement]:
        function = self._implementations[name]
        runs = (self._run(function) for _ in range(self._options.repeats - 1))
        yield compare_repeats(name, first, runs, self._unwritten())
        if name == OURS:
            yield self._over_configs(self._kernel.bind(self._subject.args))
        if self._options.check_batches:
            yield batches.compare(name, function, first)

    def _unwritten(self) -> Outputs:
        """Elements that no program writes, where that is known."""
        is_known = self._subject.launch_reference.is_complete
        tensors = self._subject.reference.tensors if is_known else {}
        return {name: ~known.written for name, known in tensors.items()}

    def _over_configs(self, bound: BoundKernel) -> Agreement:
        """Configs that do not build or run are passed over: errors are not what is looked for."""
        count: AgreementCount | None = None
        labels: list[str] = []
        for config in self._configs(bound):
            try:
                outputs = self._run(bound.compile_config(config))
            except Exception as error:
                self._failures[str(config)] = _in_one_line(error)
                continue
            labels.append("x".join(map(str, config.get("block_sizes", []))) or "no tiles")
            if count is None:
                count = AgreementCount(outputs)
            else:
                count.add(outputs)
        if count is None or len(labels) < 2:
            why = "there are no two configs that run"
            return Agreement(OURS, Scope.CONFIGS, len(labels), skipped=why)
        return count.result(OURS, Scope.CONFIGS, labels)

    def _configs(self, bound: BoundKernel) -> list[Config]:
        if self._options.configs:
            return list(self._options.configs)
        ranked = bound.config_spec.ranked_configs(self._options.num_configs)
        found = [*bound.configs, *(item.config for item in ranked)]
        return list(dict.fromkeys(map(bound.config_spec.normalize, found)))


def _in_one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
