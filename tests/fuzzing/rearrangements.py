"""Statements that move elements: values reshaped and sorted, the largest or least ones taken."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tests.fuzzing.program import Meaning, Value
from tests.fuzzing.tracked import Tracked, known


@dataclass(frozen=True)
class Reshape:
    """``result = operand.text``: neighbouring axes merged, or one split.

    Attributes:
        merged: for each axis that is new and made of others: its name and those.
    """

    result: Value
    operand: Value
    text: str
    merged: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def lines(self) -> list[str]:
        return [f"{self.result.name} = {self.operand.name}.{self.text}"]

    def evaluate(self, meaning: Meaning) -> None:
        for axis, parts in self.merged:
            lengths = torch.tensor([meaning.length(part) for part in parts])
            meaning.ranges[axis] = (0, int(lengths.prod()))
        shape = [meaning.length(axis) for axis in self.result.axes]
        found = meaning.values[self.operand.name].mapped(lambda x: x.reshape(shape))
        meaning.values[self.result.name] = found


@dataclass(frozen=True)
class Sort:
    """``values, places = torch.sort(operand)`` or its first ``count`` by ``torch.topk``."""

    values: Value
    places: Value
    operand: Value
    dim: int
    count: int | None
    is_descending: bool

    def lines(self) -> list[str]:
        if self.count is None:
            options = f"dim={self.dim}, stable=True"
            options += ", descending=True" if self.is_descending else ""
            call = f"torch.sort({self.operand.name}, {options})"
        else:
            options = f"{self.count}, dim={self.dim}"
            options += "" if self.is_descending else ", largest=False"
            call = f"torch.topk({self.operand.name}, {options})"
        return [f"{self.values.name}, {self.places.name} = {call}"]

    def evaluate(self, meaning: Meaning) -> None:
        operand = meaning.values[self.operand.name]
        count = operand.value.size(self.dim) if self.count is None else self.count
        found = in_order(operand, self.dim, is_descending=self.is_descending)
        for result, whole in zip((self.values, self.places), found):
            meaning.values[result.name] = whole.mapped(lambda x: x.narrow(self.dim, 0, count))


def in_order(x: Tracked, dim: int, *, is_descending: bool) -> tuple[Tracked, Tracked]:
    """Elements in order and their places; of equal elements the first comes first."""
    found = torch.sort(x.value, dim=dim, descending=is_descending, stable=True)
    error = x.error.gather(dim, found.indices)
    if not x.value.size(dim):
        return Tracked(found.values, error, x.dtype), known(found.indices, error)
    worst = error.amax(dim, keepdim=True).expand(error.shape)
    line, doubt = (part.double().movedim(dim, -1) for part in (found.values, error))
    apart = (line.unsqueeze(-1) - line.unsqueeze(-2)).abs()
    both = doubt.unsqueeze(-1) + doubt.unsqueeze(-2)
    # The distance from NaN is NaN: what is unknown may be NaN as well.
    unsure = (both > 0) & ~(apart > both) & ~torch.eye(line.size(-1), dtype=torch.bool)
    places = known(found.indices, unsure.any(-1).movedim(-1, dim).double())
    if x.dtype.is_floating_point:
        return Tracked(found.values, worst, x.dtype), places
    return known(found.values, worst), places
