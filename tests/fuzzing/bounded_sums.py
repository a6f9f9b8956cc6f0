"""Sums in loops that end with a tile, or where the data of each row says."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tests.fuzzing.choices import pick
from tests.fuzzing.pointwise import BOOLS, EIGHT_BITS
from tests.fuzzing.program import Grown, Meaning, Value
from tests.fuzzing.reductions import accumulated
from tests.fuzzing.scope import Scope, Workshop
from tests.fuzzing.tracked import Tracked, exactly


@dataclass(frozen=True)
class BoundedSum:
    """The sum of some elements of a vector for each lane of a tile.

    Attributes:
        form: "before" (up to the lane's own index), "after" (from it on) or "rows" (as many as
            ``ends`` says for the lane).
        tensor: a vector; of as many elements as the tile's dimension but for "rows".
        axis: of the loop.
    """

    result: Value
    form: str
    tensor: str
    dtype: torch.dtype
    size: str
    axis: str
    ends: str = ""

    def lines(self) -> list[str]:
        name, tile, axis = self.result.name, self.result.axes[0], self.axis
        start = f"{name} = hl.full([{tile}], 0, dtype={self.result.dtype})"
        head, own, sign = {
            "before": (f"{tile}.end", f"{tile}.index", "<="),
            "after": (f"{tile}.begin, {self.size}", f"{tile}.index", ">="),
            "rows": (f"0, torch.amax({name}_ends, 0)", f"{name}_ends", "<"),
        }[self.form]
        mask = f"{axis}.index[None, :] {sign} {own}[:, None]"
        load = f"{self.tensor}[{axis}][None, :].to({self.result.dtype})"
        loop = [
            f"for {axis} in hl.tile({head}):",
            f"    {name} = {name} + torch.where({mask}, {load}, 0).sum(1).to({self.result.dtype})",
        ]
        first = [f"{name}_ends = {self.ends}[{tile}]"] if self.form == "rows" else []
        return [*first, start, *loop]

    def evaluate(self, meaning: Meaning) -> None:
        first, end = meaning.extent(self.result.axes[0])
        own = torch.arange(first, end)[:, None]
        places = torch.arange(meaning.sizes[self.size])[None, :]
        if self.form == "rows":
            counts = meaning.tensors[self.ends].value[first:end].long()[:, None]
            keep = places < counts
        else:
            keep = places <= own if self.form == "before" else places >= own
        given = meaning.tensors[self.tensor]
        value = torch.where(keep, given.value[None, :], torch.zeros_like(given.value)[None, :])
        error = torch.where(keep, given.error[None, :], 0.0)
        start = exactly(torch.zeros(len(own), dtype=self.result.dtype))
        whole = Tracked(value, error, self.dtype)
        meaning.values[self.result.name] = accumulated("sum", start, whole, 1)


def grow_bounded_sum(shop: Workshop, scope: Scope) -> Grown:
    """A loop whose end depends on a tile or on data, with a mask for each lane."""
    inputs = [spec for spec in shop.inputs if len(spec.dims) == 1 and spec.dtype not in BOOLS]
    tiles = [tile for tile in scope.tiles if shop.sizes[scope.tiles[tile]]]
    if not inputs or not tiles:
        return []
    tile, spec = pick(shop.choices, tiles), pick(shop.choices, inputs)
    size = str(spec.dims[0])
    forms = ["rows", "before", "after"] if size == scope.tiles[tile] else ["rows"]
    form = pick(shop.choices, forms)
    is_float = spec.dtype.is_floating_point
    dtype = torch.float32 if spec.dtype in EIGHT_BITS else spec.dtype
    wide = pick(shop.choices, (torch.float32, torch.float64)) if is_float else torch.int64
    ends = shop.new_index(scope.tiles[tile], f"{size} + 1").name if form == "rows" else ""
    result = scope.add(shop.value(wide, (tile,)))
    return [BoundedSum(result, form, spec.name, dtype, size, shop.name("b"), ends)]
