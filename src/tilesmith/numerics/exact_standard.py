"""The standard for integers and booleans: equal, but for decisions that rounding makes."""

from __future__ import annotations

import torch

from tilesmith.numerics.judge_report import JudgeReport, Tolerance, bits_of

_MORE_DECISIONS = 2
"""How many times as many elements as in the native run may differ from the truth."""


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

    def check(self, output: torch.Tensor) -> JudgeReport:
        """The verdict on the same elements of a candidate's result."""
        if output.numel() == 0:
            return JudgeReport(True)
        distance = _distance(output, self._truth)
        distance = torch.where(bits_of(output) != bits_of(self._truth), distance.clamp(min=1), 0)
        is_off = distance > self._allowed()
        count = int(is_off.sum())
        worst = int(distance.argmax())
        is_far = self._is_neighbourly and float(distance[worst]) > 1
        num_allowed = 0 if self._tolerance is not None else self._num_allowed
        got, expected = output[worst].item(), self._truth[worst].item()
        is_right = count <= num_allowed and not is_far
        limit = f", at most {num_allowed} may" if num_allowed else ""
        reason = (
            f"{{place}} is {got}, expected {expected}; {count} of {output.numel()} elements "
            f"differ{limit}"
        )
        return JudgeReport(
            is_right,
            "" if is_right else reason,
            got=float(got),
            expected=float(expected),
            position=worst,
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
