"""The standard for floats: an allowance for every element, and one for all together.

With ``r`` the truth, ``n`` what the kernel gives as it is written, ``u`` and ``u_acc`` the unit
roundoffs of the result and of fp32 (fp64 for fp64), ``s`` the rms of ``r`` in the element's group
and ``e`` the largest excess ``|n - r| - u |r|`` in it, an element may be off by

- ``2 u |r| + 16 u_acc |r|``: rounding of the result, and a chain of steps before it;
- ``8 e``: what the kernel's own roundings do, in another order. Sums of more than 512 terms are
  allowed ``sqrt(k / 512)`` times that: torch adds in a tree, a candidate perhaps one by one. Where
  a group shares one rounding (a mean, a scale), ``e`` may be small by luck: it counts as half of
  what nearly all elements of the tensor stay below, if it is less;
- ``6 u_acc sqrt(k) s``: sums of k terms, which may be added in any order;
- ``u_mid (2 |r| + 4 s)`` for each intermediate type that the native run does not show;
- ``4 u (|r| + s)`` where programs add to narrow floats;
- half the smallest step of the type, and a flush of subnormal numbers to zero.

Elements where the native run itself is far beyond all others (a comparison that rounding decides)
do not set ``e``; at most twice as many of a candidate's may be as far off.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from tilesmith.numerics.tolerance import Budget, Tolerance, accumulation_dtype, rms, unit_roundoff

SMALLEST_GROUP = 32
PART_ON_HOST, PART_ON_DEVICE = 1 << 14, 1 << 24
"""Elements at a time: so few that torch uses one thread and a cache holds them, or so many that a
device is busy."""
USUAL_SHARE = 0.5
"""Of the excess that nearly all elements stay below: no group is expected to do better."""
LONG_SUM = 512
ADDED_WEIGHT = 4
MORE_DECISIONS = 2
FAR_BEYOND = 32
DECIDED_SHARE = 0.02
SAMPLED_PARTS = 16
"""Of a tensor, by which the usual error is found."""
RESULT_STEPS, CHAIN_STEPS = 2, 16
EXCESS_WEIGHT, NORM_WEIGHT, NORM_WEIGHT_OF_SUMS = 8, 3, 6
SUM_SIGMAS, NORM_SUM_SIGMAS = 6, 2
COARSE_VALUE_WEIGHT, COARSE_SCALE_WEIGHT = 2, 4


@dataclass(frozen=True)
class JudgeReport:
    """The verdict on a result."""

    reason: str = ""
    """Why it is wrong, in one line."""
    relative_norm: float = 0.0
    """Norm of the error over norm of the truth: the largest over all tensors."""

    @property
    def is_right(self) -> bool:
        """Whether there is nothing against it."""
        return not self.reason


class ElementGroups:
    """The groups of chosen elements of a tensor; statistics come out one per element."""

    def __init__(self, shape: torch.Size, chosen: torch.Tensor | None, *, is_on_host: bool) -> None:
        """``chosen``: positions in the flattened tensor, in ascending order; None: all."""
        self._count = math.prod(shape) if chosen is None else chosen.numel()
        row = max(1, shape[-1] if shape else 1)
        row = row if chosen is None else _first_run(chosen, row)
        # As many rows as it takes.
        self._length = min(max(1, self._count), row * -(-SMALLEST_GROUP // row))
        step = PART_ON_HOST if is_on_host else PART_ON_DEVICE
        self._step = max(1, step // self._length) * self._length

    def parts(self) -> list[slice]:
        """All elements in parts, none of which divides a group."""
        starts = range(0, self._count, self._step)
        slices = [slice(start, min(start + self._step, self._count)) for start in starts]
        if not slices:
            return []
        last = slices.pop()
        middle = last.stop - self._count % self._length
        ends = (slice(last.start, middle), slice(middle, last.stop))
        return [*slices, *(part for part in ends if part.stop > part.start)]

    def largest(self, values: torch.Tensor) -> torch.Tensor:
        """The largest of non-negative values of a part in each element's group."""
        return _repeat(self._rows(values).amax(1), values)

    def root_mean_square(self, magnitude: torch.Tensor) -> torch.Tensor:
        """Root of the mean square in each element's group, safe against overflow."""
        rows = self._rows(magnitude)
        highest = rows.amax(1, keepdim=True)
        mean = (rows / torch.where(highest > 0, highest, 1.0)).square().mean(1)
        return _repeat(highest[:, 0] * mean.sqrt(), magnitude)

    def _rows(self, values: torch.Tensor) -> torch.Tensor:
        """One group per row; what is left over in the end is a group too."""
        is_rest = values.numel() % self._length
        return values.view(1 if is_rest else -1, values.numel() if is_rest else self._length)


def _first_run(chosen: torch.Tensor, row: int) -> int:
    """How many chosen elements the first row has that has some; tiles take as many of each."""
    if not chosen.numel():
        return 1
    end = (int(chosen[0]) // row + 1) * row
    return max(1, int(torch.searchsorted(chosen, end)))


def _repeat(statistics: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    rows = statistics.numel()
    return statistics[:, None].expand(-1, values.numel() // max(1, rows)).reshape(-1)


@dataclass(frozen=True)
class ErrorTerms:
    """What the error of a tensor may come from, besides what the native run shows."""

    sum_length: int = 1
    intermediates: tuple[torch.dtype, ...] = ()
    is_accumulated: bool = False

    @property
    def order_weight(self) -> float:
        """How much larger errors of sums may be in an unlucky order."""
        return math.sqrt(max(1.0, self.sum_length / LONG_SUM))


class FloatStandard:
    """Judges floats by the truth, in fp64; part by part, so that temporaries stay small."""

    def __init__(
        self,
        truth: torch.Tensor,
        native: torch.Tensor,
        groups: ElementGroups,
        terms: ErrorTerms,
        tolerance: Tolerance | None = None,
    ) -> None:
        self._truth, self._native, self._groups = truth, native, groups
        self._dtype = native.dtype
        self._largest = torch.finfo(native.dtype).max
        self._floor = Budget(native.dtype).absolute_floor
        self._u = unit_roundoff(native.dtype)
        self._u_acc = unit_roundoff(accumulation_dtype(native.dtype))
        self._allowed = torch.empty_like(truth)
        self._num_far, self._far_allowed, self._norm_allowed = 0, 0.0, math.inf
        parts = groups.parts()
        self._is_all_plain = all(bool(self._find_plain(part).all()) for part in parts)
        self._scale = combined_rms((rms(self._magnitude(p)), p.stop - p.start) for p in parts)
        if tolerance is None:
            self._derive(terms)
        else:
            for part in groups.parts():
                magnitude = self._magnitude(part)
                self._allowed[part] = tolerance.atol + tolerance.rtol * magnitude

    def check(self, output: torch.Tensor, place_of: Callable[[int], str]) -> JudgeReport:
        """The verdict on the same elements of a candidate's result."""
        found = [self._check_part(output[part], part) for part in self._groups.parts()]
        if not found:
            return JudgeReport()
        num_off = sum(part.num_off for part in found)
        norm = combined_rms((part.norm, part.count) for part in found)
        worst = max(found, key=lambda part: part.usage)
        got, wanted = float(output[worst.position]), float(self._truth[worst.position])
        allowed = float(self._allowed[worst.position])
        reason, place = "", place_of(worst.position)
        if num_off > self._num_far or any(part.is_far for part in found):
            reason = (
                f"{place} is {got:.6g}, expected {wanted:.6g} ± {allowed:.2g}; "
                f"{num_off} of {output.numel()} elements are off"
            )
        elif norm > self._norm_allowed:
            reason = (
                f"errors are too large on the whole: {norm:.3g} (root mean square), allowed "
                f"{self._norm_allowed:.3g}; the worst is {place}"
            )
        return JudgeReport(reason, norm / self._scale if self._scale else 0.0)

    def _check_part(self, output: torch.Tensor, part: slice) -> _PartReport:
        got, allowed = output.to(torch.float64), self._allowed[part]
        error = (got - self._truth[part]).abs()
        if not self._is_all_plain:
            truth, native = self._truth[part], self._native[part].to(torch.float64)
            rounded = truth.to(self._dtype).to(torch.float64)
            is_saturated = (got.abs() == self._largest) & (truth.abs() > self._largest)
            is_saturated &= got.sign() == truth.sign()
            # What the native run or rounding of the truth gives, or what saturates.
            is_right = is_saturated | self._is_alike(got, native) | self._is_alike(got, rounded)
            special = torch.where(is_right, 0.0, math.inf)
            error = torch.where(self._find_plain(part), error, special)
        error.nan_to_num_(nan=math.inf, posinf=math.inf)
        is_off = error > allowed
        usage = torch.where(allowed > 0, error / allowed, error)
        worst = int(usage.argmax())
        num_off = int(is_off.sum())
        steady = torch.where(is_off, 0.0, error) if num_off else error
        return _PartReport(
            error.numel(),
            num_off,
            bool((error > allowed + self._far_allowed).any()) if num_off else False,
            rms(steady),
            float(usage[worst]),
            part.start + worst,
        )

    def _derive(self, terms: ErrorTerms) -> None:
        usual = self._usual_excess()
        value, whole, norm = _coefficients(terms, self._u, self._u_acc)
        largest, norms = 0.0, list[tuple[float, int]]()
        for part in self._groups.parts():
            magnitude = self._magnitude(part)
            scale = self._groups.root_mean_square(magnitude)
            error, excess = self._native_error(magnitude, part)
            is_decided = excess > FAR_BEYOND * max(usual, self._u_acc) * scale
            num_decided = int(is_decided.sum())
            if num_decided:
                largest = max(largest, float(excess.max()))
                excess, error = (torch.where(is_decided, 0.0, x) for x in (excess, error))
            self._num_far += MORE_DECISIONS * num_decided
            noise = torch.maximum(self._groups.largest(excess), USUAL_SHARE * usual * scale)
            noise *= EXCESS_WEIGHT * terms.order_weight
            self._allowed[part] = value * magnitude + whole * scale + noise + self._floor
            norms.append((rms(error), part.stop - part.start))
        self._far_allowed = EXCESS_WEIGHT * largest
        weight = NORM_WEIGHT_OF_SUMS if terms.sum_length > 1 else NORM_WEIGHT
        self._norm_allowed = weight * terms.order_weight * combined_rms(norms) + self._floor
        self._norm_allowed += norm * self._scale

    def _usual_excess(self) -> float:
        """What nearly all elements of the native run stay below, in units of their scale."""
        found: list[torch.Tensor] = []
        parts = self._groups.parts()
        for part in parts[:: max(1, len(parts) // SAMPLED_PARTS)]:
            magnitude = self._magnitude(part)
            scale = self._groups.root_mean_square(magnitude)
            _, excess = self._native_error(magnitude, part)
            found.append(excess / torch.where(scale > 0, scale, 1.0))
        if not found:
            return 0.0
        sample = torch.cat(found)
        rank = max(1, math.ceil((1 - DECIDED_SHARE) * sample.numel()))
        return float(sample.kthvalue(rank).values)

    def _native_error(
        self, magnitude: torch.Tensor, part: slice
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The error of the native run, and what of it rounding of the result does not explain."""
        error = (self._native[part].to(torch.float64) - self._truth[part]).abs()
        if not self._is_all_plain:
            error = torch.where(self._find_plain(part), error, 0.0)
        return error, (error - self._u * magnitude - self._floor).clamp_(min=0)

    def _find_plain(self, part: slice) -> torch.Tensor:
        """Where truth and native run are numbers that the type can hold."""
        native = self._native[part].to(torch.float64)
        return (self._truth[part].abs() <= self._largest) & (native.abs() <= self._largest)

    def _magnitude(self, part: slice) -> torch.Tensor:
        magnitude = self._truth[part].abs()
        if self._is_all_plain:
            return magnitude
        return torch.where(self._find_plain(part), magnitude, 0.0)

    def _is_alike(self, got: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        near = (got - other).abs() <= ADDED_WEIGHT * self._u * other.abs()
        return (got == other) | (got.isnan() & other.isnan()) | (near & other.isfinite())


@dataclass(frozen=True)
class _PartReport:
    """What was found in some elements."""

    count: int
    num_off: int
    is_far: bool
    norm: float
    """Root mean square of the errors that are not off."""
    usage: float
    """The largest share of an allowance that is used, and where."""
    position: int


def _coefficients(terms: ErrorTerms, u: float, u_acc: float) -> tuple[float, float, float]:
    """What is allowed in units of the element and of its group's scale; the norm in that of all."""
    coarse = sum(map(unit_roundoff, terms.intermediates))
    added = ADDED_WEIGHT * u if terms.is_accumulated else 0.0
    summed = u_acc * math.sqrt(terms.sum_length) if terms.sum_length > 1 else 0.0
    value = RESULT_STEPS * u + CHAIN_STEPS * u_acc + COARSE_VALUE_WEIGHT * coarse + added
    whole = COARSE_SCALE_WEIGHT * coarse + SUM_SIGMAS * summed + added
    norm = u + CHAIN_STEPS / 2 * u_acc + NORM_SUM_SIGMAS * summed + COARSE_VALUE_WEIGHT * coarse
    return value, whole, norm + added


def combined_rms(parts: Iterator[tuple[float, int]] | list[tuple[float, int]]) -> float:
    """The same of parts for which it is known, with their sizes."""
    known = list(parts)
    largest = max((value for value, _ in known), default=0.0)
    if largest == 0.0 or math.isinf(largest):
        return largest
    total = sum(count for _, count in known)
    return largest * math.sqrt(sum(n * (value / largest) ** 2 for value, n in known) / total)
