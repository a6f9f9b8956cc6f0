"""Random numbers by position: the same whatever the tiles are, compared with Philox in NumPy."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tests.frontend.philox_reference import uniform, word_at
from tests.fuzzing.choices import chance, pick
from tests.fuzzing.program import Grown, Meaning, Value
from tests.fuzzing.scope import Scope, Workshop
from tests.fuzzing.statements import number_of
from tests.fuzzing.tracked import exactly

LOW, SPAN = -5, 1000
SEEDS = ("3", "0", "-1", "1234567890123")
WHOLE = ("K", "N", "M")


@dataclass(frozen=True)
class Draw:
    """``result = hl.rand(shape, seed)`` or ``hl.randint``; a second axis is a whole dimension."""

    result: Value
    seed: str
    shape: str

    def lines(self) -> list[str]:
        is_whole = self.result.dtype == torch.int32
        name, limits = ("randint", f", {LOW}, {LOW + SPAN}") if is_whole else ("rand", "")
        return [f"{self.result.name} = hl.{name}([{self.shape}]{limits}, seed={self.seed})"]

    def evaluate(self, meaning: Meaning) -> None:
        tile, *others = self.result.axes
        places = torch.arange(*meaning.extent(tile))
        for axis in others:
            inner = meaning.sizes[axis]
            places = places[:, None] * inner + torch.arange(inner)
        word = word_at(places.numpy(), int(number_of(self.seed, meaning)))
        found = uniform(word)
        if self.result.dtype == torch.int32:
            signed = torch.from_numpy(word.astype("uint32").view("int32").astype("int64"))
            found = (LOW + signed.abs() % SPAN).to(torch.int32)
        meaning.values[self.result.name] = exactly(found)


def grow_draw(shop: Workshop, scope: Scope) -> Grown:
    """Numbers of a tile, or of its rows where their length is known."""
    if not scope.tiles:
        return []
    axes = [pick(shop.choices, list(scope.tiles))]
    shape = axes[0]
    if shop.is_static and chance(shop.choices, 60):
        axes.append(pick(shop.choices, WHOLE))
        shape += f", {shop.sizes[axes[1]]}"
    seeds = [scalar.name for scalar in shop.scalars if isinstance(scalar.value, int)]
    dtype = pick(shop.choices, (torch.float32, torch.int32))
    value = scope.add(shop.value(dtype, tuple(axes)))
    return [Draw(value, pick(shop.choices, (*seeds, *SEEDS)), shape)]
