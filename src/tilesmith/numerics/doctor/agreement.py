"""Whether results are the same bit for bit: over repeats, over configs, over batch sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch

from tilesmith.diagnostics.catalogue import BaseError
from tilesmith.frontend.containers import map_tensors, tensors_in
from tilesmith.numerics.doctor.findings import Agreement, Implementation, Outputs, Scope
from tilesmith.numerics.doctor.host_run import OutputReader
from tilesmith.numerics.judge_report import bits_of, describe_index
from tilesmith.numerics.oracle import Reference, ReferenceTensor
from tilesmith.numerics.tolerance import ulp_distance

Run = Callable[[], Outputs]
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
            next((_first_of(*found) for found in self._different.items() if found[1].any()), ""),
            tuple(labels),
        )


def _first_of(name: str, mask: torch.Tensor) -> str:
    return describe_index(name, int(mask.flatten().int().argmax()), mask.shape)


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
    """Compares implementations over batch sizes."""

    def __init__(
        self,
        args: tuple[Any, ...],
        reference: Reference,
        reader: OutputReader,
        find_reference: Callable[[tuple[Any, ...]], Reference],
    ) -> None:
        self._args = args
        self._reference = reference
        self._reader = reader
        self._find_reference = find_reference

    def compare(self, implementation: Implementation, whole: Outputs) -> Agreement:
        """The rows of all batch sizes against those of the whole."""
        if isinstance(self._batches, str):
            return _skipped(implementation, self._batches)
        length = self._batches[0].length
        rows = {n: x[:length] for n, x in whole.items() if self._has_rows(x)}
        count = AgreementCount(rows)
        for batch in self._batches:
            try:
                outputs = self._reader.run(implementation.run, batch.args)
            except Exception as error:
                first = str(error).partition("\n")[0]
                return _skipped(implementation, f"it cannot run {batch.length} rows: {first}")
            count.add({name: outputs[name][:length] for name in rows})
        labels = [f"{n} rows" for n in (self._length, *(b.length for b in self._batches))]
        return count.result(implementation.name, Scope.BATCHES, labels)

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
        fitting = [i for i, x in enumerate(tensors_in(self._args)) if self._has_rows(x)]
        for chosen in filter(None, (fitting, fitting[:1] if len(fitting) > 1 else [])):
            small = self._batch(chosen, lambda x: x.detach()[: -(-x.size(0) // 2)].clone())
            large = self._batch(chosen, lambda x: torch.cat([x.detach()] * 2))
            if self._are_rows_alone(small):
                return [small, large]
        return "rows depend on each other, or arguments do not have a row each"

    def _batch(self, chosen: Sequence[int], change: Change) -> Batch:
        rest = iter(range(len(list(tensors_in(self._args)))))
        args = map_tensors(self._args, lambda x: change(x) if next(rest) in chosen else x)
        return Batch(change(torch.empty(self._length, 0)).size(0), args)

    def _are_rows_alone(self, small: Batch) -> bool:
        try:
            found = self._find_reference(small.args)
        except (BaseError, RuntimeError, AssertionError, ValueError, IndexError):
            return False
        whole = self._reference.tensors
        rows = [name for name, known in whole.items() if self._has_rows(known.native)]
        return bool(rows) and all(
            name in found.tensors and _is_same(found.tensors[name], whole[name], small.length)
            for name in rows
        )


def _skipped(implementation: Implementation, why: str) -> Agreement:
    return Agreement(implementation.name, Scope.BATCHES, 0, skipped=why)


def _is_same(left: ReferenceTensor, right: ReferenceTensor, length: int) -> bool:
    """Whether the first rows are the same wherever both are known."""
    first, second = left.truth[:length], right.truth[:length]
    if first.shape != second.shape:
        return False
    both = left.written[:length] & right.written[:length]
    a, b = first[both].double().nan_to_num(), second[both].double().nan_to_num()
    return bool(a.numel()) and bool(((a - b).abs() <= SAME_TRUTH * b.abs().max()).all())
