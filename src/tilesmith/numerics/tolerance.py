"""Allowed error of a result, derived from its type and the length of the reductions behind it.

Types and lengths go in, a Budget comes out; its docstring holds the formula and where it is from.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from tilesmith.numerics.ulp import smallest_spacing, unit_roundoff

ELEMENTWISE_STEPS = 16
SUM_SIGMAS = 6
INTERMEDIATE_VALUE_WEIGHT = 2
INTERMEDIATE_SCALE_WEIGHT = 4
NORM_ELEMENTWISE_STEPS = 8
NORM_SUM_SIGMAS = 2
NORM_INTERMEDIATE_WEIGHT = 2


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """The type sums are carried in: float64 for float64, float32 for everything narrower."""
    return torch.float64 if dtype == torch.float64 else torch.float32


@dataclass(frozen=True)
class Budget:
    """What error a result may have.

    With ``r`` the float64 reference and ``s`` the rms of all its elements, an element may be off by

    - ``u_out |r|`` and half a subnormal step: rounding of the result to its type;
    - ``16 u_acc |r|``: a chain of element-wise steps in the accumulation type;
    - ``6 u_acc sqrt(n) s``: a sum of n terms. The rounding errors of the partial sums add up like a
      random walk, at one sigma ``u_acc sqrt(n / 2) s`` whether or not the terms cancel; six sigma
      cover 1e9 elements;
    - ``u_mid (2 |r| + 4 s)``: for each intermediate rounded to a narrower type and then summed;
    - the smallest normal of the accumulation type: hardware may flush subnormals to zero.

    The terms in ``s`` are there only for n > 1: an element-wise result has nothing to cancel. The
    error norm is held to tighter multiples, since random errors average out over many elements.

    Attributes:
        dtype: type of the result.
        reduction_length: terms of the longest sum behind one element (1: element-wise).
        intermediates: narrower types that intermediate values are rounded to, one per rounding.
    """

    dtype: torch.dtype
    reduction_length: int = 1
    intermediates: tuple[torch.dtype, ...] = ()

    @property
    def value_coefficient(self) -> float:
        """Allowed error in units of the element itself."""
        elementwise = ELEMENTWISE_STEPS * self._accumulation_roundoff
        intermediate = INTERMEDIATE_VALUE_WEIGHT * self._intermediate_roundoff
        return self._output_roundoff + elementwise + intermediate

    @property
    def scale_coefficient(self) -> float:
        """Allowed error in units of the rms of the reference; zero for element-wise results."""
        if self.reduction_length <= 1:
            return 0.0
        intermediate = INTERMEDIATE_SCALE_WEIGHT * self._intermediate_roundoff
        return SUM_SIGMAS * self._sum_growth + intermediate

    @property
    def absolute_floor(self) -> float:
        """Error allowed at zero: half a subnormal step, and a flush of subnormals to zero."""
        flushed = torch.finfo(accumulation_dtype(self.dtype)).smallest_normal
        return smallest_spacing(self.dtype) / 2 + flushed

    @property
    def relative_norm(self) -> float:
        """Largest allowed ``norm(actual - reference) / norm(reference)``."""
        elementwise = NORM_ELEMENTWISE_STEPS * self._accumulation_roundoff
        intermediate = NORM_INTERMEDIATE_WEIGHT * self._intermediate_roundoff
        summed = NORM_SUM_SIGMAS * self._sum_growth if self.reduction_length > 1 else 0.0
        return self._output_roundoff + elementwise + summed + intermediate

    def allowed(self, reference: torch.Tensor) -> torch.Tensor:
        """Largest allowed absolute error of each element, as float64."""
        magnitude = finite_magnitude(reference)
        scale = root_mean_square(magnitude)
        offset = self.scale_coefficient * scale + self.absolute_floor
        return self.value_coefficient * magnitude + offset

    @property
    def _output_roundoff(self) -> float:
        return unit_roundoff(self.dtype)

    @property
    def _accumulation_roundoff(self) -> float:
        return unit_roundoff(accumulation_dtype(self.dtype))

    @property
    def _intermediate_roundoff(self) -> float:
        return sum(unit_roundoff(dtype) for dtype in self.intermediates)

    @property
    def _sum_growth(self) -> float:
        return self._accumulation_roundoff * math.sqrt(self.reduction_length)


def derive_budget(
    dtype: torch.dtype,
    reduction_length: int = 1,
    intermediate: torch.dtype | Sequence[torch.dtype] | None = None,
) -> Budget:
    """The budget of a result of type ``dtype``; ``intermediate``: one type per extra rounding."""
    if reduction_length < 0:
        raise ValueError(f"reduction_length must not be negative, found {reduction_length}")
    if intermediate is None:
        intermediates: tuple[torch.dtype, ...] = ()
    elif isinstance(intermediate, torch.dtype):
        intermediates = (intermediate,)
    else:
        intermediates = tuple(intermediate)
    return Budget(dtype, max(1, reduction_length), intermediates)


def finite_magnitude(reference: torch.Tensor) -> torch.Tensor:
    """Absolute values as float64, with zero in place of NaN and infinity."""
    return reference.to(torch.float64).abs().nan_to_num(nan=0.0, posinf=0.0)


def root_mean_square(magnitude: torch.Tensor) -> float:
    """Root of the mean square, safe against overflow of the squares; 0 for an empty tensor."""
    largest = float(magnitude.max()) if magnitude.numel() else 0.0
    if largest == 0.0:
        return 0.0
    return largest * math.sqrt(float((magnitude / largest).square().mean()))
