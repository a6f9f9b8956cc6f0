"""Rows of a batch against the same rows of a smaller and of a larger batch, bit for bit.

Arguments are cut and doubled along their leading dimension. Whether rows may be compared at all
is asked of the fp64 reference: in a kernel that sums over the batch they differ there too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from tilesmith.diagnostics.catalogue import BaseError
from tilesmith.frontend.containers import map_tensors, tensors_in
from tilesmith.numerics.doctor.agreement import AgreementCount
from tilesmith.numerics.doctor.findings import Agreement, Implementation, Outputs, Scope
from tilesmith.numerics.doctor.runs import OutputReader
from tilesmith.numerics.oracle import Reference

SAME_TRUTH = 2.0**-36
"""How close fp64 results of the same rows must be, relative to the largest."""
Change = Callable[[torch.Tensor], torch.Tensor]


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
        for chosen in self._choices():
            small, large = self._batch(chosen, _half), self._batch(chosen, _twice)
            if self._are_rows_alone(small):
                return [small, large]
        return "rows depend on each other, or arguments do not have a row each"

    def _choices(self) -> Iterator[list[int]]:
        """Which tensors may have a row per row of the output: all that could, or the first."""
        fitting = [i for i, x in enumerate(tensors_in(self._args)) if self._has_rows(x)]
        if fitting:
            yield fitting
        if len(fitting) > 1:
            yield fitting[:1]

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
            name in found.tensors
            and _is_same(
                _rows(found.tensors[name].truth, found.tensors[name].written, small.length),
                _rows(whole[name].truth, whole[name].written, small.length),
            )
            for name in rows
        )


def _skipped(implementation: Implementation, why: str) -> Agreement:
    return Agreement(implementation.name, Scope.BATCHES, 0, skipped=why)


def _half(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach()[: -(-tensor.size(0) // 2)].clone()


def _twice(tensor: torch.Tensor) -> torch.Tensor:
    return torch.cat([tensor.detach()] * 2)


def _rows(
    truth: torch.Tensor, known: torch.Tensor, length: int
) -> tuple[torch.Tensor, torch.Tensor]:
    return truth[:length], known[:length]


def _is_same(
    left: tuple[torch.Tensor, torch.Tensor], right: tuple[torch.Tensor, torch.Tensor]
) -> bool:
    if left[0].shape != right[0].shape:
        return False
    both = left[1] & right[1]
    a, b = left[0][both].double().nan_to_num(), right[0][both].double().nan_to_num()
    if not a.numel():
        return False
    return bool(((a - b).abs() <= SAME_TRUTH * b.abs().max()).all())
