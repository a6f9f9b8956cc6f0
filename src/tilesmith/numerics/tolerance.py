"""Spacing of floats, and the allowed error of a result.

The error follows from the result's type and the length of the reductions behind it: types and
lengths go in, a Budget comes out; its docstring holds the formula and where it is from.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

_DOUBLE_BIAS = 1023
_DOUBLE_FRACTION_BITS = 52
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_ORDERED_VIEWS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
# The weights of the formula in Budget, which says where each comes from.
ELEMENTWISE_STEPS = 16
SUM_SIGMAS = 6
INTERMEDIATE_VALUE_WEIGHT = 2
INTERMEDIATE_SCALE_WEIGHT = 4
NORM_ELEMENTWISE_STEPS, NORM_SUM_SIGMAS, NORM_INTERMEDIATE_WEIGHT = 8, 2, 2


def unit_roundoff(dtype: torch.dtype) -> float:
    """Largest relative error of rounding one value to ``dtype`` (half of its machine epsilon)."""
    return torch.finfo(dtype).eps / 2


def min_exponent(dtype: torch.dtype) -> int:
    """Exponent of the smallest normal number: 2**min_exponent."""
    return math.frexp(torch.finfo(dtype).smallest_normal)[1] - 1


def max_exponent(dtype: torch.dtype) -> int:
    """Exponent of the largest finite number, which lies in [2**e, 2**(e + 1))."""
    return math.frexp(torch.finfo(dtype).max)[1] - 1


def smallest_spacing(dtype: torch.dtype) -> float:
    """Distance between neighbouring subnormal numbers, the smallest spacing of the type."""
    finfo = torch.finfo(dtype)
    return math.ldexp(finfo.eps, min_exponent(dtype))


def ulp_at(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Spacing of ``dtype`` at each of ``values``; infinities and NaN count as the largest binade.

    Example:
        >>> ulp_at(torch.tensor([1.0, 3.0]), torch.bfloat16).tolist()
        [0.0078125, 0.015625]
    """
    highest = max_exponent(dtype)
    magnitude = values.to(torch.float64).abs()
    exponent = torch.frexp(magnitude).exponent - 1
    exponent = torch.where(torch.isfinite(magnitude), exponent, highest)
    # frexp(0) has exponent 0, which would make zero look like a number near one.
    exponent = torch.where(magnitude == 0, min_exponent(dtype), exponent)
    exponent = exponent.clamp(min_exponent(dtype), highest)
    return _power_of_two(exponent + math.frexp(torch.finfo(dtype).eps)[1] - 1)


def ulp_error(actual: torch.Tensor, reference: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Distance of ``actual`` from a float64 ``reference`` in ulps of ``dtype`` at the reference.

    A correctly rounded result is at most 0.5 away.
    """
    exact = reference.to(torch.float64)
    return (actual.to(torch.float64) - exact).abs() / ulp_at(exact, dtype)


def ulp_distance(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """How many representable values lie between two tensors of one float type, as int64.

    Both zeros are one value. The distance of a NaN from anything but a NaN is the largest int64.

    Example:
        >>> ulp_distance(torch.tensor([1.0]), torch.tensor([1.0 + 2**-23])).tolist()
        [1]
    """
    if left.dtype != right.dtype or not left.dtype.is_floating_point:
        raise TypeError(f"expected one float type, found {left.dtype} and {right.dtype}")
    distance = _saturating_distance(_ordered(left), _ordered(right))
    left_nan, right_nan = left.to(torch.float64).isnan(), right.to(torch.float64).isnan()
    distance = torch.where(left_nan != right_nan, torch.iinfo(torch.int64).max, distance)
    return torch.where(left_nan & right_nan, 0, distance)


def _power_of_two(exponent: torch.Tensor) -> torch.Tensor:
    """2.0**exponent, exactly, subnormals included (vectorised pow may be an ulp off)."""
    wide = exponent.to(torch.int64)
    normal = (wide + _DOUBLE_BIAS).clamp(min=0) << _DOUBLE_FRACTION_BITS
    shift = (wide + _DOUBLE_BIAS - 1 + _DOUBLE_FRACTION_BITS).clamp(0, _DOUBLE_FRACTION_BITS)
    subnormal = torch.ones_like(wide) << shift
    bits = torch.where(wide > -_DOUBLE_BIAS, normal, subnormal)
    return bits.view(torch.float64)


def _ordered(values: torch.Tensor) -> torch.Tensor:
    """Map floats to int64 so that neighbours differ by one and order is kept."""
    view = _ORDERED_VIEWS[values.element_size()]
    bits = values.contiguous().view(view).to(torch.int64)
    # Negative floats are sign and magnitude: flip them so that more negative means smaller.
    lowest = torch.iinfo(view).min
    return torch.where(bits < 0, lowest - bits, bits)


def _saturating_distance(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """|left - right| in int64, kept at the maximum where it would not fit (float64 only)."""
    difference = (left - right).abs()
    # Same-signed operands cannot overflow; opposite signs overflow to a negative or wrong value.
    overflows = ((left < 0) != (right < 0)) & (
        left.to(torch.float64).abs() + right.to(torch.float64).abs() >= 2.0**63
    )
    return torch.where(overflows, torch.iinfo(torch.int64).max, difference)


def bits_of(tensor: torch.Tensor) -> torch.Tensor:
    """The elements as integers of the same width."""
    return tensor.view(_INTEGERS[tensor.itemsize])


def unravel(position: int, shape: torch.Size) -> tuple[int, ...]:
    """The index of a position in row-major order."""
    # torch.unravel_index would load sympy first, which takes a second.
    index: list[int] = []
    for extent in reversed(shape):
        position, place = divmod(position, extent)
        index.append(place)
    return tuple(reversed(index))


def describe_index(tensor: str, position: int, shape: torch.Size) -> str:
    """An element as code spells it: ``out[3, 5]``."""
    index = ", ".join(map(str, unravel(position, shape)))
    return f"{tensor}[{index}]" if index else tensor


@dataclass(frozen=True)
class Tolerance:
    """The user's own: an element may be off by ``atol + rtol * |expected|``."""

    atol: float = 0.0
    rtol: float = 0.0


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
    - ``c (6 |r| / sqrt(3) + 6.6 s)``, where ``c = sqrt(33 / 3 * 0.54 steps) 2**-13``: a sum that
      matrix units make in steps of 32 terms, each cut 13 bits below its largest (decision 0034);
    - the smallest normal of the accumulation type: hardware may flush subnormals to zero.

    Where terms are not of one size everywhere (a causal average has one key or thousands), ``s`` is
    given for each element: the root of the sum of the squares of its terms, times the slope of a
    function that comes after the sum. Terms in ``s`` are only there for n > 1: an element-wise
    result has nothing to cancel. The error norm is held to tighter multiples, since random errors
    average out over many elements (of few: ``rounded_products``).

    Attributes:
        dtype: type of the result.
        reduction_length: terms of the longest sum behind one element (1: element-wise).
        intermediates: narrower types that intermediate values are rounded to, one per rounding.
        cut_steps: steps of the longest sum in matrix units that cut it.
    """

    dtype: torch.dtype
    reduction_length: int = 1
    intermediates: tuple[torch.dtype, ...] = ()
    cut_steps: int = 0

    @property
    def value_coefficient(self) -> float:
        """Allowed error in units of the element itself."""
        elementwise = ELEMENTWISE_STEPS * self._accumulation_roundoff
        intermediate = INTERMEDIATE_VALUE_WEIGHT * self._intermediate_roundoff
        return (
            unit_roundoff(self.dtype)
            + elementwise
            + intermediate
            + SUM_SIGMAS / math.sqrt(3) * self._cut
        )

    @property
    def scale_coefficient(self) -> float:
        """Allowed error in units of the rms of the reference; zero for element-wise results."""
        if self.reduction_length <= 1:
            return 0.0
        intermediate = INTERMEDIATE_SCALE_WEIGHT * self._intermediate_roundoff
        return SUM_SIGMAS * self._sum_growth + intermediate + 6.6 * self._cut

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
        return unit_roundoff(self.dtype) + elementwise + summed + intermediate + self._cut

    def allowed(self, reference: torch.Tensor, sizes: torch.Tensor | None = None) -> torch.Tensor:
        """Largest allowed absolute error of each element, as float64; ``sizes`` are its ``s``."""
        magnitude = finite_magnitude(reference)
        scale = rms(magnitude) if sizes is None else sizes
        offset = self.scale_coefficient * scale + self.absolute_floor
        return self.value_coefficient * magnitude + offset

    @property
    def _accumulation_roundoff(self) -> float:
        return unit_roundoff(accumulation_dtype(self.dtype))

    @property
    def _intermediate_roundoff(self) -> float:
        return sum(unit_roundoff(dtype) for dtype in self.intermediates)

    @property
    def _cut(self) -> float:
        return 2.0**-13 * math.sqrt(33 / 3 * 0.54 * self.cut_steps)

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
    listed = (intermediate,) if isinstance(intermediate, torch.dtype) else intermediate or ()
    return Budget(dtype, max(1, reduction_length), tuple(listed))


def finite_magnitude(reference: torch.Tensor) -> torch.Tensor:
    """Absolute values as float64, with zero in place of NaN and infinity."""
    return reference.to(torch.float64).abs().nan_to_num(nan=0.0, posinf=0.0)


def rms(magnitude: torch.Tensor) -> float:
    """Root of the mean square, safe against overflow of the squares; 0 for an empty tensor."""
    largest = float(magnitude.max()) if magnitude.numel() else 0.0
    if largest == 0.0 or math.isinf(largest):
        return largest
    return largest * math.sqrt(float((magnitude / largest).square().mean()))
