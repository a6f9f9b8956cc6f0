"""What a judge says, and what it is told: reports, the user's tolerances, places in words."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True)
class Tolerance:
    """The user's own: an element may be off by ``atol + rtol * |expected|``."""

    atol: float = 0.0
    rtol: float = 0.0


@dataclass(frozen=True)
class JudgeReport:
    """The verdict on a result. The element is the worst one: that uses most of its allowance."""

    is_right: bool
    reason: str = ""
    """Why not, in one line."""
    tensor: str = ""
    index: tuple[int, ...] = ()
    got: float = 0.0
    expected: float = 0.0
    allowed: float = 0.0
    ulps: float = 0.0
    """Its error in units in the last place of the type; the largest over all tensors."""
    relative_norm: float = 0.0
    """Norm of the error over norm of the truth: the largest over all tensors."""
    position: int = -1
    """Of the worst element among those judged."""

    def combined(self, other: JudgeReport) -> JudgeReport:
        """Two good reports as one."""
        return replace(
            other,
            ulps=max(self.ulps, other.ulps),
            relative_norm=max(self.relative_norm, other.relative_norm),
        )

    def named(self, tensor: str, shape: torch.Size, chosen: torch.Tensor | None) -> JudgeReport:
        """With the place of the worst element; ``chosen``: where the judged elements stand."""
        if self.position < 0:
            return replace(self, tensor=tensor)
        position = self.position if chosen is None else int(chosen[self.position])
        index = unravel(position, shape)
        place = describe_index(tensor, position, shape)
        reason = self.reason.format(place=place) if self.reason else ""
        return replace(self, tensor=tensor, index=index, reason=reason)


RIGHT = JudgeReport(True)


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


def bits_of(tensor: torch.Tensor) -> torch.Tensor:
    """The elements as integers of the same width."""
    return tensor.view(_INTEGERS[tensor.itemsize])
