"""Statements of random programs: text for a kernel, and a meaning on whole tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from tests.fuzzing.atomics import updated
from tests.fuzzing.pointwise import FUNCTIONS, evaluate
from tests.fuzzing.program import Meaning, UndecidedError, Value, size_of
from tests.fuzzing.reductions import accumulated, added_product, reduced, scanned
from tests.fuzzing.tracked import Tracked, cast, exactly

Operand = Value | str
"""A device value; or the text of a number: a literal, or the name of an argument or loop index."""


def text_of(operand: Operand, axes: tuple[str, ...]) -> str:
    """An operand with its axes aligned."""
    return operand.aligned(axes) if isinstance(operand, Value) else operand


def number_of(text: str, meaning: Meaning) -> int | float:
    """A literal, an argument, a loop index, or a size with a number added."""
    if text in meaning.numbers:
        return meaning.numbers[text]
    if text[0].isalpha():
        return size_of(text, meaning.sizes)
    return float(text) if "." in text else int(text)


def meaning_of(operand: Operand, axes: tuple[str, ...], meaning: Meaning) -> Any:
    """The whole tensor of an operand, aligned; or its number."""
    if isinstance(operand, str):
        return number_of(operand, meaning)
    return meaning.values[operand.name].mapped(lambda x: operand.align(x, axes))


@dataclass(frozen=True)
class Compute:
    """``result = function(operands)``; rebinds where the name exists."""

    result: Value
    function: str
    operands: tuple[Operand, ...]
    dtype: torch.dtype
    """The type of the function's result, before it is converted for a name that exists."""

    def lines(self) -> list[str]:
        function = FUNCTIONS[self.function]
        text = function.text.format(*(text_of(x, self.result.axes) for x in self.operands))
        if self.dtype != self.result.dtype:
            text = f"({text}).to({self.result.dtype})"
        return [f"{self.result.name} = {text}"]

    def evaluate(self, meaning: Meaning) -> None:
        axes = self.result.axes
        operands = [meaning_of(x, axes, meaning) for x in self.operands]
        found = evaluate(FUNCTIONS[self.function], operands, self.dtype)
        shape = [meaning.length(axis) for axis in axes]
        whole = cast(found, self.result.dtype).mapped(lambda x: x.expand(shape))
        meaning.values[self.result.name] = whole


@dataclass(frozen=True)
class Position:
    """The index of one dimension.

    Attributes:
        kind: "tile", "full", "number", "shifted", "turned", "halved", "wrapped" or "gather".
        name: the tile, the number's text or the value's name.
        offset: added to a shifted index.
        size: of the dimension that a turned index counts from the end of, and that a wrapped one
            begins again after.
    """

    kind: str
    name: str = ":"
    offset: int = 0
    size: str = ""

    def text(self) -> str:
        texts = {
            "shifted": f"{self.name}.index + {self.offset}",
            "turned": f"{self.size} - 1 - {self.name}.index",
            "halved": f"{self.name}.index // 2",
            "wrapped": f"{self.name}.index % {self.size}",
        }
        return texts.get(self.kind, self.name)

    def places(self, meaning: Meaning, size: int) -> torch.Tensor:
        """Which elements, in range or not."""
        if self.kind == "full":
            return torch.arange(size)
        if self.kind == "number":
            return torch.tensor([number_of(self.name, meaning)])
        if self.kind == "gather":
            index = meaning.values[self.name]
            if bool((index.error > 0).any()):
                raise UndecidedError
            return index.value.long()
        places = torch.arange(*meaning.extent(self.name))
        moved: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
            "shifted": lambda x: x + self.offset,
            "turned": lambda x: size - 1 - x,
            "halved": lambda x: x // 2,
            "wrapped": lambda x: x % size,
        }
        return moved[self.kind](places) if self.kind in moved else places


def grid_of(
    positions: tuple[Position, ...], shape: torch.Size, meaning: Meaning
) -> list[torch.Tensor]:
    """One index tensor per dimension, clamped into range, all broadcast together."""
    places = [
        position.places(meaning, size).clamp(0, max(0, size - 1))
        for position, size in zip(positions, shape)
    ]
    return list(torch.meshgrid(*places, indexing="ij")) if places else []


SPANS = ("tile", "full", "number")
"""Positions that are next to each other."""


def taken(x: torch.Tensor, positions: tuple[Position, ...], meaning: Meaning) -> torch.Tensor:
    """The elements at positions, clamped into range; a view where these are next to each other."""
    for dim, position in enumerate(positions):
        size = x.size(dim)
        if position.kind == "full":
            continue
        if position.kind == "tile":
            first, end = meaning.extent(position.name)
            x = x.narrow(dim, min(first, size), max(0, end - first))
        elif position.kind == "number":
            x = x.narrow(dim, min(max(0, int(number_of(position.name, meaning))), size - 1), 1)
        else:
            x = x.index_select(dim, position.places(meaning, size).clamp(0, max(0, size - 1)))
    return without_numbers(positions, x)


def without_numbers(positions: tuple[Position, ...], whole: torch.Tensor) -> torch.Tensor:
    """Drop the axes of numbers."""
    for place, position in reversed(list(enumerate(positions))):
        if position.kind == "number":
            whole = whole.squeeze(place)
    return whole


@dataclass(frozen=True)
class Load:
    """``result = tensor[positions]``, with lanes masked off where ``mask`` is false."""

    result: Value
    tensor: str
    positions: tuple[Position, ...]
    mask: Value | None = None

    def lines(self) -> list[str]:
        index = ", ".join(position.text() for position in self.positions)
        if self.mask is None:
            return [f"{self.result.name} = {self.tensor}[{index}]"]
        index = index.replace(":", "slice(None)")
        mask = self.mask.aligned(self.result.axes)
        return [f"{self.result.name} = hl.load({self.tensor}, [{index}], extra_mask={mask})"]

    def evaluate(self, meaning: Meaning) -> None:
        tensor = meaning.tensors[self.tensor]
        # A copy: the tensor may be stored to after this.
        found = tensor.mapped(lambda x: taken(x, self.positions, meaning).clone())
        if self.mask is not None:
            mask: Tracked = meaning_of(self.mask, self.result.axes, meaning)
            value = torch.where(mask.value, found.value, torch.zeros_like(found.value))
            error = torch.where(mask.value, found.error, 0.0) + mask.error
            found = Tracked(value, error, found.dtype)
        meaning.values[self.result.name] = found


@dataclass(frozen=True)
class Store:
    """``tensor[positions] = value``, or an atomic update; only where ``mask`` is true."""

    tensor: str
    positions: tuple[Position, ...]
    value: Value
    axes: tuple[str, ...]
    """Axes of the places stored to, without numbers."""
    mask: Value | None = None
    atomic: str = ""
    """How elements are updated: "add", "max", "min", "and", "or" or "xor"."""

    def lines(self) -> list[str]:
        index = ", ".join(position.text() for position in self.positions)
        value = self.value.aligned(self.axes)
        listed = index.replace(":", "slice(None)")
        if self.atomic:
            return [f"hl.atomic_{self.atomic}({self.tensor}, [{listed}], {value})"]
        if self.mask is None:
            return [f"{self.tensor}[{index}] = {value}"]
        mask = self.mask.aligned(self.axes)
        return [f"hl.store({self.tensor}, [{listed}], {value}, extra_mask={mask})"]

    def evaluate(self, meaning: Meaning) -> None:
        tensor = meaning.tensors[self.tensor]
        whole: Tracked = cast(meaning_of(self.value, self.axes, meaning), tensor.dtype)
        shape = [meaning.length(axis) for axis in self.axes]
        whole = whole.mapped(lambda x: x.expand(shape))
        is_plain = all(position.kind in SPANS for position in self.positions)
        if is_plain and self.mask is None and not self.atomic:
            for part in ("value", "error"):
                taken(getattr(tensor, part), self.positions, meaning).copy_(getattr(whole, part))
            return
        index = tuple(grid_of(self.positions, tensor.value.shape, meaning))
        places = [without_numbers(self.positions, x) for x in index]
        keep = torch.ones(shape, dtype=torch.bool)
        if self.mask is not None:
            mask: Tracked = meaning_of(self.mask, self.axes, meaning)
            if bool((mask.error > 0).any()):
                raise UndecidedError
            keep = mask.value.expand(shape)
        if self.atomic:
            updated(tensor, tuple(places), whole, self.atomic)
            return
        for part in ("value", "error"):
            target, given = getattr(tensor, part), getattr(whole, part)
            if not places:
                target.copy_(given)
                continue
            where = tuple(x[keep] for x in places)
            target.index_put_(where, given[keep])


@dataclass(frozen=True)
class Create:
    """A value without memory: a constant tile, or the indices of a tile."""

    result: Value
    number: str | None
    shape_text: str = ""

    def lines(self) -> list[str]:
        if self.number is None:
            return [f"{self.result.name} = {self.result.axes[0]}.index"]
        shape = self.shape_text
        return [
            f"{self.result.name} = hl.full([{shape}], {self.number}, dtype={self.result.dtype})"
        ]

    def evaluate(self, meaning: Meaning) -> None:
        if self.number is None:
            first, end = meaning.extent(self.result.axes[0])
            found = torch.arange(first, end, dtype=torch.int32)
        else:
            shape = [meaning.length(axis) for axis in self.result.axes]
            found = torch.full(shape, number_of(self.number, meaning), dtype=self.result.dtype)
        meaning.values[self.result.name] = exactly(found)


@dataclass(frozen=True)
class Reduce:
    """``result = operand.kind(dim)``."""

    result: Value
    kind: str
    operand: Value
    dim: int

    def lines(self) -> list[str]:
        return [f"{self.result.name} = torch.{self.kind}({self.operand.name}, {self.dim})"]

    def evaluate(self, meaning: Meaning) -> None:
        operand = meaning.values[self.operand.name]
        meaning.values[self.result.name] = reduced(self.kind, operand, self.dim, self.result.dtype)


@dataclass(frozen=True)
class Scan:
    """``result = torch.kind(operand, dim)``, or of the module ``hl``, also from the end."""

    result: Value
    kind: str
    operand: Value
    dim: int
    module: str = "torch"
    reverse: bool = False

    def lines(self) -> list[str]:
        reverse = ", reverse=True" if self.reverse else ""
        call = f"{self.module}.{self.kind}({self.operand.name}, {self.dim}{reverse})"
        return [f"{self.result.name} = {call}"]

    def evaluate(self, meaning: Meaning) -> None:
        operand = meaning.values[self.operand.name]
        turned = operand.mapped(lambda x: x.flip(self.dim)) if self.reverse else operand
        found = scanned(self.kind, turned, self.dim, self.result.dtype)
        found = found.mapped(lambda x: x.flip(self.dim)) if self.reverse else found
        meaning.values[self.result.name] = found


@dataclass(frozen=True)
class Accumulate:
    """``result = result + operand.sum(dim)`` and its kin, in a loop over the tiles of ``dim``."""

    result: Value
    kind: str
    operand: Value
    dim: int
    combine: str = ""
    """The text of a function for ``hl.reduce``, where that takes the place of torch's."""

    def lines(self) -> list[str]:
        name, dtype = self.result.name, self.result.dtype
        part = f"torch.{self.kind}({self.operand.name}, {self.dim})"
        if self.combine:
            part = f"hl.reduce({self.combine}, {self.operand.name}, {self.dim})"
        texts = {
            "sum": f"{name} + {part}.to({dtype})",
            "amax": f"torch.maximum({name}, {part}.to({dtype}))",
            "amin": f"torch.minimum({name}, {part}.to({dtype}))",
            "any": f"{name} | {part}",
        }
        return [f"{name} = {texts[self.kind]}"]

    def evaluate(self, meaning: Meaning) -> None:
        start, operand = meaning.values[self.result.name], meaning.values[self.operand.name]
        if self.combine and operand.dtype.is_floating_point:
            # A choice by comparison has no order where one element is NaN.
            is_nan = operand.value.isnan()
            error = torch.where(is_nan, torch.inf, operand.error)
            operand = Tracked(torch.where(is_nan, 0.0, operand.value), error, operand.dtype)
        meaning.values[self.result.name] = accumulated(self.kind, start, operand, self.dim)


@dataclass(frozen=True)
class Product:
    """A product of matrices, added to ``result`` in a loop over the tiles of its inner axis."""

    result: Value
    form: str
    left: Value
    right: Value
    is_added: bool

    def lines(self) -> list[str]:
        name, left, right = self.result.name, self.left.name, self.right.name
        texts = {
            "addmm": f"torch.addmm({name}, {left}, {right})",
            "acc": f"hl.dot({left}, {right}, acc={name})",
            "plus": f"{name} + hl.dot({left}, {right})",
            "dot": f"hl.dot({left}, {right})",
            "mm": f"{left} @ {right}",
        }
        return [f"{name} = {texts[self.form]}"]

    def evaluate(self, meaning: Meaning) -> None:
        left, right = meaning.values[self.left.name], meaning.values[self.right.name]
        start = meaning.values[self.result.name] if self.is_added else None
        meaning.values[self.result.name] = added_product(left, right, self.result.dtype, start)
