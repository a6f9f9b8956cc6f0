"""What a program must compute: whole tensors, no tiles, with bounds of errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import torch

from tests.fuzzing.layouts import Placed, contents, place
from tests.fuzzing.program import Meaning, Outer, Program
from tests.fuzzing.tracked import Tracked, exactly


def make_arguments(program: Program) -> list[Placed]:
    """The tensor arguments."""
    return [
        place(contents(spec, program.sizes, str(program.seed)), spec.layout)
        for spec in program.arguments
    ]


def expected(program: Program) -> list[Tracked]:
    """The outputs, in the program's order; raises UndecidedError where rounding decides."""
    placed = {spec.name: x.view for spec, x in zip(program.arguments, make_arguments(program))}
    tensors = {
        spec.name: exactly(
            placed[spec.name]
            if spec.name in placed
            else contents(spec, program.sizes, str(program.seed))
        )
        for spec in program.tensors
    }
    own = {
        name: x.mapped(lambda part: part.clone(memory_format=torch.contiguous_format))
        for name, x in tensors.items()
    }
    numbers = {**program.sizes, **{scalar.name: scalar.value for scalar in program.scalars}}
    for loop in program.loops:
        for turn in _turns(loop):
            meaning = Meaning(program.sizes, own, numbers=dict(numbers))
            _run(loop, turn, meaning)
    return [own[spec.name] for spec in program.outputs]


def _turns(loop: Outer) -> Iterator[Sequence[int]]:
    """Indices of a grid; one turn with whole ranges for tiles."""
    ranges = [range(begin, end) for _, _, begin, end in loop.axes]
    if loop.kind == "grid":
        yield from product(*ranges)
    elif all(ranges):
        yield ()


def _run(loop: Outer, turn: Sequence[int], meaning: Meaning) -> None:
    for place_, (axis, _, begin, end) in enumerate(loop.axes):
        if loop.kind == "grid":
            meaning.numbers[axis] = turn[place_]
        else:
            meaning.ranges[axis] = (begin, end)
    for statement in loop.body:
        statement.evaluate(meaning)


@dataclass(frozen=True)
class Difference:
    """Where an output is not what it must be."""

    output: int
    text: str


def find_difference(found: Sequence[torch.Tensor], wanted: Sequence[Tracked]) -> Difference | None:
    """The first output beyond its bounds, if any."""
    for number, (actual, tracked) in enumerate(zip(found, wanted, strict=True)):
        text = _describe(actual.cpu(), tracked)
        if text:
            return Difference(number, text)
    return None


def _describe(actual: torch.Tensor, wanted: Tracked) -> str:
    if actual.dtype != wanted.dtype or actual.shape != wanted.value.shape:
        found, shape = f"{actual.dtype} {list(actual.shape)}", list(wanted.value.shape)
        return f"{found}, expected {wanted.dtype} {shape}"
    if actual.dtype.is_floating_point:
        distance = (actual.double() - wanted.value).abs()
        wrong = ~(distance <= wanted.error) & ~wanted.error.isinf()
    else:
        wrong = (actual != wanted.value) & (wanted.error == 0)
    if not bool(wrong.any()):
        return ""
    index = tuple(wrong.nonzero()[0].tolist())
    return (
        f"{int(wrong.sum())} of {wrong.numel()} elements are wrong, first {list(index)}: "
        f"found {actual[index].item()}, expected {wanted.value[index].item()} "
        f"within {wanted.error[index].item():.3g}"
    )
