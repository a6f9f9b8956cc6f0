"""Whether results are the same bit for bit: over repeats, over configs, over batch sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import torch

from tilesmith.numerics.doctor.findings import Agreement, Outputs, Scope
from tilesmith.numerics.judge_report import bits_of, describe_index
from tilesmith.numerics.ulp import ulp_distance

Run = Callable[[], Outputs]


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
        """What was found."""
        return Agreement(
            implementation,
            over,
            self._num_runs,
            sum(int(mask.sum()) for mask in self._different.values()),
            sum(mask.numel() for mask in self._different.values()),
            self._max_ulp,
            self._first_difference(),
            tuple(labels),
        )

    def _first_difference(self) -> str:
        for name, mask in self._different.items():
            if bool(mask.any()):
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
