"""Ways in which wrong results resemble right ones: a factor, an offset, a shift, a missing part.

Each is tried on all elements; one that explains every element within ``closeness`` is named. None
is a proof: it says where to look first.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt

import torch

LEAST_ELEMENTS = 8
"""Of fewer, nearly anything is a factor of anything."""
SHIFTS = (1, -1, 2, -2)


def describe_resemblance(truth: torch.Tensor, got: torch.Tensor, closeness: float) -> str:
    """How ``got`` comes from ``truth`` (both fp64, of one shape); empty if in no known way.

    Example:
        >>> truth = torch.arange(1.0, 17.0, dtype=torch.float64)
        >>> describe_resemblance(truth, truth * 4, 1e-9)
        'every element is 4 times what it should be (4 is the square root of 16)'
    """
    if truth.numel() < LEAST_ELEMENTS or not bool(truth.isfinite().all()):
        return ""
    finite = got.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
    found = (*_parts(truth, got, closeness), *_wholes(truth, finite, closeness))
    return next(iter(found), "")


def _wholes(truth: torch.Tensor, got: torch.Tensor, closeness: float) -> Iterator[str]:
    """What holds for all elements alike."""
    factor = float((got * truth).sum() / (truth * truth).sum().clamp(min=1e-300))
    if factor and _is_close(got, factor * truth, closeness):
        yield f"every element is {factor:.6g} times what it should be{_known_as(factor, truth)}"
    offset = float((got - truth).median())
    if offset and _is_close(got - truth, torch.full_like(truth, offset), closeness):
        yield f"every element is off by {offset:.6g}"
    for axis, size in enumerate(truth.shape):
        for shift in SHIFTS:
            left, right = max(shift, 0), max(-shift, 0)
            moved = got.narrow(axis, left, size - abs(shift)) if size > 2 * abs(shift) else None
            if moved is not None and _is_close(
                moved, truth.narrow(axis, right, size - abs(shift)), closeness
            ):
                yield f"elements stand {shift:+d} from their place along axis {axis}"
        if size > 1 and _is_close(got.flip(axis), truth, closeness):
            yield f"elements are in the opposite order along axis {axis}"
    is_square = truth.ndim > 1 and truth.shape[-1] == truth.shape[-2] > 1
    if is_square and _is_close(got.mT, truth, closeness):
        yield "the last two axes are swapped"


def _parts(truth: torch.Tensor, got: torch.Tensor, closeness: float) -> Iterator[str]:
    """What holds for a part of the elements, the others being right."""
    scale = sqrt(float(truth.square().mean()))
    wrong = ~((got - truth).abs() <= closeness * scale + closeness * truth.abs())
    if not bool(wrong.any()) or bool(wrong.all()):
        return
    values = got[wrong]
    is_one = bool((values == values[0]).all()) or bool(values.isnan().all())
    what = f"; they are all {float(values[0]):g}, as if never computed" if is_one else ""
    for axis, size in enumerate(truth.shape):
        others = [other for other in range(truth.ndim) if other != axis]
        line = wrong.any(others) if others else wrong
        places = line.nonzero().flatten()
        first, last = int(places[0]), int(places[-1])
        # Most of an axis is no part of it: such results are wrong as a whole.
        is_block = len(places) == last - first + 1 <= size / 2
        if is_block and first > 0 and last == size - 1:
            yield f"only elements from {first} to the end of axis {axis} ({size}) are wrong{what}"
        elif is_block and first == 0 and last < size - 1:
            yield f"only the first {last + 1} of {size} elements of axis {axis} are wrong{what}"
    if is_one:
        yield f"{int(wrong.sum())} of {wrong.numel()} elements are wrong{what}"


def _is_close(got: torch.Tensor, expected: torch.Tensor, closeness: float) -> bool:
    return float((got - expected).norm()) <= closeness * float(expected.norm())


def _known_as(factor: float, truth: torch.Tensor) -> str:
    """Where a factor may come from: the size of an axis, or its root."""
    for size in dict.fromkeys(truth.shape):
        names = {
            float(size): f"the size {size} of an axis",
            sqrt(size): f"the square root of {size}",
        }
        for value, name in names.items():
            for number, text in ((value, "{:g} is {}"), (1 / value, "one over {:g}, {}")):
                if size > 1 and abs(factor / number - 1) < 1e-3:
                    return f" ({text.format(value, name)})"
    return ""
