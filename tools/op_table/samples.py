"""Sample inputs that fit into one tile: drawn, chosen, and salted with special values."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

_MOST_ELEMENTS = 1024
_MOST_AXES = 3
_MOST_SAMPLES = 5
_SPECIAL_VALUES = (float("nan"), 0.0, float("inf"), -0.0, float("-inf"), 1.0, -1.0)


@dataclass(frozen=True)
class Sample:
    """The arguments of one call."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict[str, Any])
    is_special: bool = False

    def call(self, fn: Callable[..., Any]) -> Any:
        """Apply a function to the arguments."""
        return fn(*self.args, **self.kwargs)

    def tensors(self) -> list[torch.Tensor]:
        """All tensors among the arguments, in order."""
        found: list[torch.Tensor] = []
        self.map_tensors(lambda tensor: found.append(tensor) or tensor)
        return found

    def map_tensors(self, change: Callable[[torch.Tensor], Any]) -> Sample:
        """The same call with each tensor replaced."""

        def mapped(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                return change(value)
            if isinstance(value, (tuple, list)) and not isinstance(value, torch.Size):
                return type(value)(map(mapped, value))
            return value

        kwargs = {name: mapped(value) for name, value in self.kwargs.items()}
        return Sample(tuple(map(mapped, self.args)), kwargs, self.is_special)

    def signature(self) -> str:
        """What tells samples apart but for their values."""
        shown = self.map_tensors(lambda tensor: f"{tuple(tensor.shape)} {tensor.dtype}")
        return f"{shown.args} {shown.kwargs}"


def choose(drawn: Iterable[Sample], dtype: torch.dtype) -> list[Sample]:
    """A few small samples, as unlike each other as they come, and one with special values."""
    fitting: dict[str, Sample] = {}
    for sample in drawn:
        if _fits(sample):
            fitting.setdefault(sample.signature(), sample)
    samples = list(fitting.values())
    step = max(1, len(samples) // _MOST_SAMPLES)
    chosen = samples[::step][:_MOST_SAMPLES]
    if dtype.is_floating_point:
        chosen += [salted for salted in map(_salted, chosen) if salted is not None][:1]
    return chosen


def _fits(sample: Sample) -> bool:
    tensors = sample.tensors()
    return bool(tensors) and all(
        tensor.dim() <= _MOST_AXES
        and 0 < tensor.numel() <= _MOST_ELEMENTS
        and not tensor.is_complex()
        and not tensor.is_sparse
        for tensor in tensors
    )


def _salted(sample: Sample) -> Sample | None:
    """Special values in every float tensor, at other places in each so that they meet."""
    if max(tensor.numel() for tensor in sample.tensors()) < len(_SPECIAL_VALUES):
        return None
    count = 0

    def salt(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal count
        if not tensor.is_floating_point() or tensor.numel() < len(_SPECIAL_VALUES):
            return tensor
        salted = tensor.clone(memory_format=torch.contiguous_format).view(-1)
        specials = torch.tensor(_SPECIAL_VALUES, dtype=tensor.dtype).roll(count)
        salted[: len(specials)] = specials
        count += 1
        return salted.view(tensor.shape)

    salted = sample.map_tensors(salt)
    return Sample(salted.args, salted.kwargs, True) if count else None
