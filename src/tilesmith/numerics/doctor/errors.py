"""How far outputs are from the truth: statistics in ulps, and the worst elements.

All implementations are measured in ulps of the kernel's own type, so that they can be compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import torch

from tilesmith.numerics.compare import ElementErrors, measure_elements, relative_norm
from tilesmith.numerics.doctor.findings import ErrorStatistics, Outputs, WorstElement
from tilesmith.numerics.doctor.histogram import count_errors
from tilesmith.numerics.judge import Judge
from tilesmith.numerics.judge_report import unravel
from tilesmith.numerics.oracle import Reference, ReferenceTensor
from tilesmith.numerics.tolerance import Budget


class Yardstick:
    """Measures outputs of implementations against one reference."""

    def __init__(self, reference: Reference, num_worst: int) -> None:
        self._tensors = reference.tensors
        self._num_worst = num_worst
        self._judges = {
            name: Judge(replace(reference, tensors={name: tensor}))
            for name, tensor in reference.tensors.items()
        }

    def measure(self, implementation: str, outputs: Outputs) -> Iterator[ErrorStatistics]:
        """Statistics of every output whose truth is known."""
        for name, known in self._tensors.items():
            if name in outputs:
                yield self._measure(implementation, name, outputs[name], known)

    def _measure(
        self, implementation: str, name: str, output: torch.Tensor, known: ReferenceTensor
    ) -> ErrorStatistics:
        dtype = known.native.dtype
        positions = known.written.flatten().nonzero().flatten()
        got = output.reshape(-1)[positions]
        truth = known.truth.reshape(-1)[positions]
        errors = _errors(got, truth, dtype)
        ulps = errors.absolute / errors.spacing
        signed = (got.double() - truth.double()).sign() * ulps
        floor = Budget(dtype).absolute_floor if dtype.is_floating_point else 0.0
        report = self._judges[name].check({name: _comparable(output, dtype)})
        return ErrorStatistics(
            implementation,
            name,
            dtype,
            got.numel(),
            max_ulp=_rank(ulps, 1.0),
            median_ulp=_rank(ulps, 0.5),
            p99_ulp=_rank(ulps, 0.99),
            max_abs=_rank(errors.absolute, 1.0),
            relative_norm=relative_norm(errors.absolute, errors.reference, floor),
            bias_ulp=_rank(signed[signed.isfinite()], 0.5),
            histogram=count_errors(ulps),
            worst=tuple(self._worst(errors, (got, truth), positions, known.truth.shape)),
            fault=report.reason,
        )

    def _worst(
        self,
        errors: ElementErrors,
        values: tuple[torch.Tensor, torch.Tensor],
        positions: torch.Tensor,
        shape: torch.Size,
    ) -> Iterator[WorstElement]:
        """The largest errors in ulps, and the largest of all."""
        ulps, (got, truth) = errors.absolute / errors.spacing, values
        if not ulps.numel():
            return
        ranked = ulps.topk(min(self._num_worst, ulps.numel())).indices.tolist()
        largest = int(errors.absolute.argmax())
        for place in dict.fromkeys([*ranked, largest]):
            if float(errors.absolute[place]) > 0.0:
                index = unravel(int(positions[place]), shape)
                exact, error = float(truth[place]), float(ulps[place])
                yield WorstElement(index, float(got[place]), exact, error)


def _errors(got: torch.Tensor, truth: torch.Tensor, dtype: torch.dtype) -> ElementErrors:
    if dtype.is_floating_point:
        return measure_elements(got, truth, dtype)
    off = (got.double() - truth.double()).abs()
    # float64 cannot tell neighbouring large integers apart; they differ by at least one.
    off = torch.where(got != truth, off.clamp(min=1.0), 0.0)
    return ElementErrors(off, torch.ones_like(off), truth.double())


def _comparable(output: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Other floats are as good; integers are compared bit by bit."""
    return output if dtype.is_floating_point else output.to(dtype)


def _rank(values: torch.Tensor, share: float) -> float:
    """The value that this share of all is not above; 0 if there are none."""
    if not values.numel():
        return 0.0
    return float(values.kthvalue(max(1, math.ceil(share * values.numel()))).values)
