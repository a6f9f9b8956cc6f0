"""What a program must compute: whole tensors, no tiles, with bounds of errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import torch

from tests.fuzzing.layouts import Placed, contents, place
from tests.fuzzing.program import Meaning, Outer, Program, TensorSpec
from tests.fuzzing.tracked import Tracked, exactly


def make_arguments(program: Program) -> list[Placed]:
    """The tensor arguments; those that share memory with another are views of it."""
    placed: dict[str, Placed] = {}
    for spec in program.arguments:
        placed[spec.name] = (
            shared(placed[spec.shares], spec)
            if spec.shares
            else place(_contents(spec, program), spec.layout)
        )
    return list(placed.values())


def shared(placed: Placed, spec: TensorSpec) -> Placed:
    """Another view of the same memory."""
    return Placed(_turned(placed.view) if spec.is_turned else placed.view, placed.memory)


def _turned(x: torch.Tensor) -> torch.Tensor:
    return x.permute(*reversed(range(x.dim())))


def _contents(spec: TensorSpec, program: Program) -> torch.Tensor:
    return contents(spec, program.sizes, str(program.seed), program.data)


def expected(
    program: Program,
    arguments: Sequence[Placed] | None = None,
    leaves: Mapping[str, torch.Tensor] | None = None,
) -> list[Tracked]:
    """The outputs, in the program's order; raises UndecidedError where rounding decides.

    Tensors in ``leaves``, in fp64, are taken for arguments of their names: autograd sees them.
    """
    arguments = make_arguments(program) if arguments is None else arguments
    placed = {spec.name: x.view for spec, x in zip(program.arguments, arguments)}
    own: dict[str, Tracked] = {}
    for spec in program.tensors:
        if spec.shares:
            own[spec.name] = own[spec.shares].mapped(_turned if spec.is_turned else lambda x: x)
            continue
        given = placed[spec.name] if spec.name in placed else _contents(spec, program)
        if leaves is not None and spec.name in leaves:
            zeros = torch.zeros(given.shape, dtype=torch.float64)
            own[spec.name] = Tracked(leaves[spec.name].clone(), zeros, spec.dtype)
            continue
        own[spec.name] = exactly(given).mapped(
            lambda part: part.clone(memory_format=torch.contiguous_format)
        )
    numbers = {**program.sizes, **{scalar.name: scalar.value for scalar in program.scalars}}
    for loop in program.loops:
        for turn in _turns(loop, program.sizes):
            meaning = Meaning(program.sizes, own, numbers=dict(numbers))
            _run(loop, turn, meaning)
    return [own[spec.name] for spec in program.outputs]


def _turns(loop: Outer, sizes: Mapping[str, int]) -> Iterator[Sequence[int]]:
    """Indices of a grid; one turn with whole ranges for tiles."""
    ranges = [range(begin, sizes[size] - left) for _, size, begin, left in loop.axes]
    if loop.kind == "grid":
        yield from product(*ranges)
    elif all(ranges):
        yield ()


def _run(loop: Outer, turn: Sequence[int], meaning: Meaning) -> None:
    for place_, (axis, size, begin, left) in enumerate(loop.axes):
        if loop.kind == "grid":
            meaning.numbers[axis] = turn[place_]
        else:
            meaning.ranges[axis] = (begin, meaning.sizes[size] - left)
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
        found = actual.double()
        is_same = (found == wanted.value) | (found.isnan() & wanted.value.isnan())
        is_near = (found - wanted.value).abs() <= wanted.error
        wrong = ~is_near & ~is_same & ~wanted.error.isinf()
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
