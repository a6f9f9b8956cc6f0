"""Judges results of a candidate by a Reference: how far off each element may be, and is.

What an element may be off follows from the reference itself: rounding of the result, and a multiple
of the error that the kernel has as it is written. Integers must be equal, but for decisions that
rounding makes in the reference too. What no program writes must stay as it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from tilesmith.numerics.element_groups import ElementGroups
from tilesmith.numerics.exact_standard import ExactStandard
from tilesmith.numerics.float_standard import FloatStandard
from tilesmith.numerics.judge_report import RIGHT, JudgeReport, Tolerance, bits_of, describe_index
from tilesmith.numerics.oracle import Reference, ReferenceTensor

DEFAULT_TOLERANCE = Tolerance(1e-2, 1e-2)
"""For values of the user's own function, whose precision is not known."""


class Judge:
    """Judges outputs of candidates, tensor by tensor."""

    def __init__(self, reference: Reference, tolerance: Tolerance | None = None) -> None:
        self._standards = {
            name: _TensorJudge(name, tensor, reference, tolerance)
            for name, tensor in reference.tensors.items()
        }

    @classmethod
    def of_expected(
        cls, expected: Mapping[str, torch.Tensor], tolerance: Tolerance | None = None
    ) -> Judge:
        """A judge by values from elsewhere, such as the user's own function."""
        tensors = {name: _as_reference(values) for name, values in expected.items()}
        reference = Reference(tensors, is_complete=True, reason="values from elsewhere")
        return cls(reference, tolerance or DEFAULT_TOLERANCE)

    def check(self, outputs: Mapping[str, torch.Tensor]) -> JudgeReport:
        """The verdict on outputs by name; of several wrong tensors the first is reported."""
        worst = RIGHT
        for name, standard in self._standards.items():
            report = standard.check(outputs[name])
            if not report.is_right:
                return report
            worst = worst.combined(report)
        return worst


@dataclass(frozen=True)
class _Untouched:
    """Elements that no program writes, and their bits."""

    positions: torch.Tensor
    bits: torch.Tensor


class _TensorJudge:
    """Judges one tensor: its written elements by a standard, the others by their bits."""

    def __init__(
        self,
        name: str,
        tensor: ReferenceTensor,
        reference: Reference,
        tolerance: Tolerance | None,
    ) -> None:
        self._name = name
        self._shape = tensor.native.shape
        written = tensor.written.flatten()
        is_whole = bool(written.all())
        self._chosen = None if is_whole else written.nonzero().flatten()
        self._untouched = None
        if reference.is_complete and not is_whole:
            self._untouched = _find_untouched(tensor.native, written)
        truth, native = self._flat(tensor.truth), self._flat(tensor.native)
        if native.is_floating_point():
            groups = ElementGroups(self._shape, self._chosen, is_on_host=native.is_cpu)
            self._standard: FloatStandard | ExactStandard = FloatStandard(
                truth, native, groups, reference.terms_of(tensor), tolerance
            )
        else:
            self._standard = ExactStandard(truth, native, tolerance)

    def check(self, output: torch.Tensor) -> JudgeReport:
        if self._untouched is not None:
            bits = bits_of(output).flatten()[self._untouched.positions]
            changed = bits != self._untouched.bits
            if bool(changed.any()):
                position = int(self._untouched.positions[int(changed.int().argmax())])
                return self._wrote_elsewhere(position, int(changed.sum()))
        report = self._standard.check(self._flat(output))
        return report.named(self._name, self._shape, self._chosen)

    def _wrote_elsewhere(self, position: int, count: int) -> JudgeReport:
        place = describe_index(self._name, position, self._shape)
        reason = f"{place} was written, and should not be"
        others = f"; so were {count - 1} other elements" if count > 1 else ""
        return JudgeReport(False, reason + others, self._name)

    def _flat(self, tensor: torch.Tensor) -> torch.Tensor:
        flat = tensor.reshape(-1)
        if self._chosen is None:
            return flat
        return bits_of(flat)[self._chosen].view(flat.dtype)


def _find_untouched(native: torch.Tensor, written: torch.Tensor) -> _Untouched:
    positions = (~written).nonzero().flatten()
    return _Untouched(positions, bits_of(native).flatten()[positions])


def _as_reference(values: torch.Tensor) -> ReferenceTensor:
    truth = values.to(torch.float64) if values.is_floating_point() else values
    return ReferenceTensor(truth, values, torch.ones_like(values, dtype=torch.bool))
