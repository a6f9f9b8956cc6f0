"""Classes of programs that must not be rare, each with the share of programs that has it.

Coverage counts pairs of features; a class is what a kind of mistake in a compiler needs to show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch

from tests.fuzzing.block_statements import Repeat, TileLoop, Until
from tests.fuzzing.bounded_sums import BoundedSum
from tests.fuzzing.draws import Draw
from tests.fuzzing.exchanges import Exchange
from tests.fuzzing.helper_calls import HelperCall
from tests.fuzzing.pointwise import COMPARISONS, EIGHT_BITS
from tests.fuzzing.program import Program, Statement, Value, walk
from tests.fuzzing.rearrangements import Sort
from tests.fuzzing.rotations import Rotate
from tests.fuzzing.statements import Compute, Load, Reduce, Scan, Store

Test = Callable[[Program], bool]


def _statements(program: Program) -> Iterator[Statement]:
    return walk(statement for loop in program.loops for statement in loop.body)


def _any(test: Callable[[Statement], bool]) -> Test:
    return lambda program: any(map(test, _statements(program)))


def _has_type(*dtypes: torch.dtype) -> Test:
    return lambda program: any(spec.dtype in dtypes for spec in program.arguments)


def _has_content(content: str) -> Test:
    return lambda program: any(spec.content == content for spec in program.tensors)


def _compares(dtype: torch.dtype) -> Test:
    """Two values of a type, not a value and a number."""

    def test(x: Statement) -> bool:
        if not isinstance(x, Compute) or x.function not in COMPARISONS:
            return False
        return all(isinstance(y, Value) and y.dtype == dtype for y in x.operands)

    return _any(test)


def _ends_with(text: str) -> Test:
    return _any(lambda x: isinstance(x, TileLoop) and text in x.end)


def _rotates_in_a_loop(program: Program) -> bool:
    loops = (x for x in _statements(program) if isinstance(x, (Repeat, Until)))
    return any(isinstance(x, Rotate) for loop in loops for x in walk(loop.body))


def _blocks(body: Sequence[Statement]) -> Iterator[Sequence[Statement]]:
    yield body
    for statement in body:
        for inner in (getattr(statement, "body", ()), getattr(statement, "orelse", ())):
            yield from _blocks(inner)


def _in_turn(*kinds: type[Statement]) -> Test:
    """Accesses of one place, by any of its names, one after the other with none between."""

    def test(program: Program) -> bool:
        owners = {spec.name: spec.shares or spec.name for spec in program.tensors}
        for block in (x for loop in program.loops for x in _blocks(loop.body)):
            seen: dict[str, list[type]] = {}
            for x in block:
                if isinstance(x, (Load, Store, Exchange)):
                    line = seen.setdefault(owners[x.tensor], [])
                    line.append(type(x))
                    if tuple(line[-len(kinds) :]) == kinds:
                        return True
        return False

    return test


def _goes_on_in_a_loop(program: Program) -> bool:
    """Whether a loop over numbers stores to a place that was loaded before it."""
    owners = {spec.name: spec.shares or spec.name for spec in program.tensors}
    for block in (x for loop in program.loops for x in _blocks(loop.body)):
        loaded: set[str] = set()
        for x in block:
            if isinstance(x, Load):
                loaded.add(owners[x.tensor])
            if isinstance(x, (Repeat, Until)):
                stores = [y for y in walk(x.body) if isinstance(y, (Store, Exchange))]
                if any(owners[y.tensor] in loaded for y in stores):
                    return True
    return False


CLASSES: dict[str, tuple[float, Test]] = {
    "helper functions": (0.08, _any(lambda x: isinstance(x, HelperCall))),
    "loops that end with a tile": (
        0.08,
        _any(lambda x: isinstance(x, BoundedSum) or (isinstance(x, TileLoop) and "." in x.end)),
    ),
    "loops that end where data says": (0.04, _ends_with("v")),
    "several top-level loops": (0.25, lambda program: len(program.loops) > 1),
    "barriers": (0.12, lambda program: any(x.is_after_barrier for x in program.loops)),
    "two names of one memory": (0.2, lambda program: any(x.shares for x in program.tensors)),
    "sizes left open": (0.6, lambda program: not program.static_shapes),
    "float8 arguments": (0.15, _has_type(*EIGHT_BITS)),
    "int8, uint8 or int16 arguments": (0.3, _has_type(torch.int8, torch.uint8, torch.int16)),
    "bytes of all values": (0.2, _has_content("wide")),
    "gathers": (0.3, _has_content("index")),
    "hostile indices": (0.08, _has_content("hostile")),
    "atomics": (0.15, _any(lambda x: isinstance(x, Store) and x.atomic != "")),
    "atomics other than sums": (
        0.06, _any(lambda x: isinstance(x, Store) and x.atomic not in ("", "add")),
    ),
    "atomics whose old values are used": (0.06, _any(lambda x: isinstance(x, Exchange))),
    "scans": (0.1, _any(lambda x: isinstance(x, Scan))),
    "sorts": (0.05, _any(lambda x: isinstance(x, Sort))),
    "random numbers": (0.04, _any(lambda x: isinstance(x, Draw))),
    "exchanged values in loops": (0.08, _rotates_in_a_loop),
    "load, store, load of one place": (0.05, _in_turn(Load, Store, Load)),
    "loops that store to what was loaded": (0.05, _goes_on_in_a_loop),
    "stores to one place in turn": (0.08, _in_turn(Store, Store)),
    "sums of narrow floats": (
        0.02,
        _any(
            lambda x: isinstance(x, Reduce)
            and x.kind in ("sum", "mean")
            and x.operand.dtype in (torch.float16, torch.bfloat16)
        ),
    ),
    "comparisons of uint8": (0.02, _compares(torch.uint8)),
    "comparisons of int8": (0.02, _compares(torch.int8)),
}  # fmt: skip
"""With the least share of programs that must have each: about half of what they had."""


def shares(programs: Sequence[Program]) -> dict[str, float]:
    """What part of programs is of each class."""
    return {name: sum(map(test, programs)) / len(programs) for name, (_, test) in CLASSES.items()}
