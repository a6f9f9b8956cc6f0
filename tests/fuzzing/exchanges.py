"""Atomic updates whose old values are used: each element is updated by one lane of one program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from tests.fuzzing.atomics import lost_in_memory
from tests.fuzzing.program import Meaning, UndecidedError, Value
from tests.fuzzing.statements import Position, meaning_of, taken
from tests.fuzzing.tracked import Tracked, known, rounded

CHOSEN: dict[str, Callable[..., torch.Tensor]] = {
    "add": torch.add,
    "max": torch.maximum,
    "min": torch.minimum,
    "and": torch.bitwise_and,
    "or": torch.bitwise_or,
    "xor": torch.bitwise_xor,
}


@dataclass(frozen=True)
class Exchange:
    """``result = hl.atomic_kind(tensor, [positions], value)``: what was there.

    Attributes:
        axes: of the places, and of the value.
        expected: the number that "cas" swaps.
    """

    result: Value
    kind: str
    tensor: str
    positions: tuple[Position, ...]
    value: Value
    axes: tuple[str, ...]
    expected: str = "0"

    def lines(self) -> list[str]:
        index = ", ".join(position.text() for position in self.positions)
        arguments = [self.tensor, f"[{index.replace(':', 'slice(None)')}]"]
        arguments += [self.expected] if self.kind == "cas" else []
        arguments.append(self.value.aligned(self.axes))
        return [f"{self.result.name} = hl.atomic_{self.kind}({', '.join(arguments)})"]

    def evaluate(self, meaning: Meaning) -> None:
        tensor = meaning.tensors[self.tensor]
        place = tensor.mapped(lambda x: taken(x, self.positions, meaning))
        old = place.mapped(lambda x: x.clone())
        new = self._after(old, meaning_of(self.value, self.axes, meaning))
        place.value.copy_(new.value)
        place.error.copy_(new.error)
        meaning.values[self.result.name] = old

    def _after(self, old: Tracked, given: Tracked) -> Tracked:
        if self.kind == "xchg":
            return given
        if self.kind == "cas":
            if bool((old.error > 0).any()):
                raise UndecidedError
            is_same = old.value == int(self.expected)
            error = torch.where(is_same, given.error, old.error)
            return Tracked(torch.where(is_same, given.value, old.value), error, old.dtype)
        value, error = CHOSEN[self.kind](old.value, given.value), old.error + given.error
        if not old.dtype.is_floating_point:
            return known(value, error)
        return rounded(value, error + lost_in_memory(old.dtype), old.dtype)
