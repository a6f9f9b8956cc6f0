"""Statements of random programs that hold others: loops and branches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from tests.fuzzing.program import Meaning, Statement, UndecidedError, Value, indented
from tests.fuzzing.statements import Operand, number_of, text_of
from tests.fuzzing.tracked import exactly


@dataclass(frozen=True)
class TileLoop:
    """A sequential loop over tiles: on whole tensors its body runs once.

    Attributes:
        begin: text of the first index: a number, a 0-d value, or ``t.begin`` of a tile.
        end: text of the end: a size, a 0-d value, or ``t.end`` of the same tile.
    """

    axis: str
    begin: str
    end: str
    body: tuple[Statement, ...]
    block_size: int | None = None
    is_reversed: bool = False

    def lines(self) -> list[str]:
        begin = f"{self.begin}, " if self.begin != "0" else ""
        block = f", block_size={self.block_size}" if self.block_size else ""
        tiles = f"hl.tile({begin}{self.end}{block})"
        tiles = f"reversed({tiles})" if self.is_reversed else tiles
        return [f"for {self.axis} in {tiles}:", *indented(self.body)]

    def evaluate(self, meaning: Meaning) -> None:
        begin, end = bound_of(self.begin, meaning), bound_of(self.end, meaning)
        meaning.ranges[self.axis] = (begin, max(begin, end))
        if begin < end:
            for statement in self.body:
                statement.evaluate(meaning)


def bound_of(text: str, meaning: Meaning) -> int:
    """The number that a loop begins or ends with: over all tiles together."""
    tile, _, end = text.partition(".")
    if end:
        return meaning.extent(tile)[end == "end"]
    if text in meaning.values:
        return int(decided(Value(text, torch.int64, ()), meaning))
    return int(number_of(text, meaning))


@dataclass(frozen=True)
class Repeat:
    """``for index in range(count)``: turn after turn."""

    index: str
    head: str
    """``range``, ``hl.grid`` or ``hl.static_range``."""
    count: str
    body: tuple[Statement, ...]

    def lines(self) -> list[str]:
        return [f"for {self.index} in {self.head}({self.count}):", *indented(self.body)]

    def evaluate(self, meaning: Meaning) -> None:
        for turn in range(int(number_of(self.count, meaning))):
            meaning.numbers[self.index] = turn
            for statement in self.body:
                statement.evaluate(meaning)


COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<": lambda x, y: x < y,
    "==": lambda x, y: x == y,
    ">=": lambda x, y: x >= y,
}


@dataclass(frozen=True)
class Branch:
    """``if left sign right``: one arm runs."""

    left: Operand
    sign: str
    right: str
    body: tuple[Statement, ...]
    orelse: tuple[Statement, ...]

    def lines(self) -> list[str]:
        lines = [f"if {text_of(self.left, ())} {self.sign} {self.right}:", *indented(self.body)]
        return lines + (["else:", *indented(self.orelse)] if self.orelse else [])

    def evaluate(self, meaning: Meaning) -> None:
        left = decided(self.left, meaning)
        is_true = COMPARE[self.sign](left, number_of(self.right, meaning))
        for statement in self.body if is_true else self.orelse:
            statement.evaluate(meaning)


def decided(operand: Operand, meaning: Meaning) -> int | float:
    """The number of a scalar, which must not be in doubt."""
    if isinstance(operand, str):
        return number_of(operand, meaning)
    found = meaning.values[operand.name]
    if float(found.error) > 0:
        raise UndecidedError
    return found.value.item()


@dataclass(frozen=True)
class Until:
    """``while counter < limit``: the body, then the counter is one more."""

    counter: Value
    limit: str
    body: tuple[Statement, ...]

    def lines(self) -> list[str]:
        name = self.counter.name
        lines = [f"while {name} < {self.limit}:", *indented(self.body)]
        return [*lines, f"    {name} = {name} + 1"]

    def evaluate(self, meaning: Meaning) -> None:
        turns = int(decided(self.counter, meaning)), int(number_of(self.limit, meaning))
        for turn in range(*turns):
            for statement in self.body:
                statement.evaluate(meaning)
            meaning.values[self.counter.name] = exactly(torch.tensor(turn + 1, dtype=torch.int32))
