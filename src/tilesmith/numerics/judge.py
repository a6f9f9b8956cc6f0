"""Judges results of a candidate by a Reference: how far off each element may be, and is.

What an element may be off follows from the reference itself: rounding of the result, and a multiple
of the error that the kernel has as it is written. Integers must be equal, but for decisions that
rounding makes in the reference too. What no program writes must stay as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from tilesmith.numerics.float_standard import ElementGroups, FloatStandard, JudgeReport
from tilesmith.numerics.oracle import Reference, ReferenceTensor
from tilesmith.numerics.tolerance import Tolerance, bits_of, describe_index

_MORE_DECISIONS = 2
"""How many times as many elements as in the native run may differ from the truth."""
DEFAULT_TOLERANCE = Tolerance(1e-2, 1e-2)
"""For values of the user's own function, whose precision is not known."""


class ExactStandard:
    """Judges integers by the truth and by what the kernel gives as it is written."""

    def __init__(
        self, truth: torch.Tensor, native: torch.Tensor, tolerance: Tolerance | None
    ) -> None:
        self._truth = truth
        self._tolerance = tolerance
        differs = bits_of(native) != bits_of(truth)
        self._num_allowed = _MORE_DECISIONS * int(differs.sum())
        off = _distance(native, truth)
        # Where rounding moves a value to its neighbour (quantisation), it moves none further.
        self._is_neighbourly = bool(self._num_allowed) and float(off.max()) <= 1

    def check(self, output: torch.Tensor, place_of: Callable[[int], str]) -> JudgeReport:
        """The verdict on the same elements of a candidate's result."""
        if output.numel() == 0:
            return JudgeReport()
        distance = _distance(output, self._truth)
        distance = torch.where(bits_of(output) != bits_of(self._truth), distance.clamp(min=1), 0)
        is_off = distance > self._allowed()
        count = int(is_off.sum())
        worst = int(distance.argmax())
        is_far = self._is_neighbourly and float(distance[worst]) > 1
        num_allowed = 0 if self._tolerance is not None else self._num_allowed
        got, expected = output[worst].item(), self._truth[worst].item()
        if count <= num_allowed and not is_far:
            return JudgeReport()
        limit = f", at most {num_allowed} may" if num_allowed else ""
        return JudgeReport(
            f"{place_of(worst)} is {got}, expected {expected}; {count} of {output.numel()} "
            f"elements differ{limit}"
        )

    def _allowed(self) -> torch.Tensor | float:
        if self._tolerance is None:
            return 0.0
        magnitude = self._truth.to(torch.float64).abs()
        return self._tolerance.atol + self._tolerance.rtol * magnitude


def _distance(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    if not left.numel():
        return torch.zeros(1, dtype=torch.float64)
    return (left.to(torch.float64) - right.to(torch.float64)).abs()


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
        tensors: dict[str, ReferenceTensor] = {}
        for name, values in expected.items():
            truth = values.to(torch.float64) if values.is_floating_point() else values
            written = torch.ones_like(values, dtype=torch.bool)
            tensors[name] = ReferenceTensor(truth, values, written)
        reference = Reference(tensors, is_complete=True, reason="values from elsewhere")
        return cls(reference, tolerance or DEFAULT_TOLERANCE)

    def check(self, outputs: Mapping[str, torch.Tensor]) -> JudgeReport:
        """The verdict on outputs by name; of several wrong tensors the first is reported."""
        norm = 0.0
        for name, standard in self._standards.items():
            report = standard.check(outputs[name])
            if not report.is_right:
                return report
            norm = max(norm, report.relative_norm)
        return JudgeReport("", norm)


class _TensorJudge:
    """Judges one tensor: its written elements by a standard, the others by their bits."""

    def __init__(
        self, name: str, tensor: ReferenceTensor, reference: Reference, tolerance: Tolerance | None
    ) -> None:
        self._name = name
        self._shape = tensor.native.shape
        written = tensor.written.flatten()
        is_whole = bool(written.all())
        self._chosen = None if is_whole else written.nonzero().flatten()
        self._untouched = None
        if reference.is_complete and not is_whole:
            # Elements that no program writes, and their bits.
            positions = (~written).nonzero().flatten()
            self._untouched = positions, bits_of(tensor.native).flatten()[positions]
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
            positions, bits = self._untouched
            changed = bits_of(output).flatten()[positions] != bits
            count = int(changed.sum())
            if count:
                position = int(positions[int(changed.int().argmax())])
                place = describe_index(self._name, position, self._shape)
                others = f"; so were {count - 1} other elements" if count > 1 else ""
                return JudgeReport(f"{place} was written, and should not be{others}")
        return self._standard.check(self._flat(output), self._place_of)

    def _place_of(self, position: int) -> str:
        """The element at a position among those judged."""
        whole = position if self._chosen is None else int(self._chosen[position])
        return describe_index(self._name, whole, self._shape)

    def _flat(self, tensor: torch.Tensor) -> torch.Tensor:
        flat = tensor.reshape(-1)
        if self._chosen is None:
            return flat
        return bits_of(flat)[self._chosen].view(flat.dtype)
