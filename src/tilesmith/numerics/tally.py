"""Errors of a result, a part of its elements at a time, as figures of the whole.

Judging an element takes a dozen float64 values, so that a whole result of gigabytes would need what
no device has beside it. The figures of all parts stay where the result is until the last: nothing
is waited for in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf, sqrt

import torch

from tilesmith.numerics.tolerance import Budget, finite_magnitude

PART = 1 << 24
"""Elements: 128 MiB as float64."""


@dataclass(frozen=True)
class ElementErrors:
    """Errors of elements one by one, all float64."""

    absolute: torch.Tensor
    """Infinite where NaN or infinity does not match."""
    spacing: torch.Tensor
    """One ulp at the reference."""
    reference: torch.Tensor
    """What sets the scale: infinities, which are compared as such, are zero."""


@dataclass(frozen=True)
class Scale:
    """Of all elements of a reference, as numbers on its device."""

    largest: torch.Tensor
    """Finite magnitude; one where all are zero."""
    norm: torch.Tensor
    """Of the elements over the largest."""
    count: int

    @property
    def rms(self) -> torch.Tensor:
        """Root of the mean square; zero where all are zero."""
        return self.largest * self.norm / sqrt(self.count)


def scale_of(reference: torch.Tensor, form: Callable[[torch.Tensor], torch.Tensor]) -> Scale:
    """That of what ``form`` makes of the elements, in two passes: squares must not overflow."""
    sizes = [finite_magnitude(form(part)).max() for part in _parts(reference)]
    most = torch.stack(sizes).max()
    largest = torch.where(most > 0, most, 1.0)
    squares = [
        (finite_magnitude(form(part)) / largest).square().sum() for part in _parts(reference)
    ]
    return Scale(largest, torch.stack(squares).sum().sqrt(), reference.numel())


@dataclass(frozen=True)
class Tally:
    """Figures of a result; as of ErrorReport."""

    max_ulp: float
    max_abs: float
    relative_norm: float
    """Infinite where all of the reference is zero and the result is not."""
    worst_place: int
    """Among the elements in row-major order."""
    worst_allowed: float
    num_beyond: int


def tally(
    budget: Budget | None,
    pair: tuple[torch.Tensor, torch.Tensor],
    sizes: torch.Tensor | None,
    scale: Scale,
    measure: Callable[[torch.Tensor, torch.Tensor], ElementErrors],
) -> Tally:
    """The figures of a result and its reference, which have elements."""
    own = None if sizes is None else sizes.expand(pair[0].shape)
    lines: list[torch.Tensor] = []
    for place, (actual, reference) in enumerate(zip(*map(_parts, pair))):
        size = scale.rms if own is None else own.reshape(-1)[place * PART : (place + 1) * PART]
        lines.append(_figures(budget, measure(actual, reference), size, scale.largest))
    found = torch.stack(lines)
    part = int(found[:, 4].argmax())
    ulp, absolute = found[:, 0].max().item(), found[:, 1].max().item()
    norm = scale.norm.item()
    return Tally(
        max_ulp=ulp,
        max_abs=absolute,
        relative_norm=sqrt(found[:, 2].sum().item()) / norm if norm else inf,
        worst_place=part * PART + int(found[part, 5]),
        worst_allowed=found[part, 6].item(),
        num_beyond=int(found[:, 3].sum()),
    )


def _figures(
    budget: Budget | None, found: ElementErrors, size: torch.Tensor, largest: torch.Tensor
) -> torch.Tensor:
    error = found.absolute
    allowed = torch.zeros_like(error) if budget is None else budget.allowed(found.reference, size)
    # Share of the allowance each element uses; the error itself where nothing is allowed.
    usage = torch.where(allowed > 0, error / allowed, error)
    worst = usage.argmax()
    figures = (
        (error / found.spacing).max(),
        error.max(),
        (error / largest).square().sum(),
        (error > allowed).sum(),
        usage[worst],
        worst,
        allowed[worst],
    )
    return torch.stack([figure.double() for figure in figures])


def _parts(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    return iter(tensor.reshape(-1).split(PART))
