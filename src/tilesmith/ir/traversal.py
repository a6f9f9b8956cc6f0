"""Walking and rewriting nested regions, and what holds at a place in them.

A rule looks at an op and at what defines its operands. It answers None (no match), a value to use
instead of the op's only result, or ops to put in its place, the last of which gives its results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation, Region
from tilesmith.ir.ops.control_flow import Grid, Loop
from tilesmith.ir.types import TileType, Value

Rewrite = Callable[[Operation], "Operation | Iterable[Operation] | None"]
"""What to put in an op's place: itself, several ops, or nothing (None)."""


def walk(region: Region) -> Iterator[Operation]:
    """All ops of a region, outer before inner, in program order."""
    for op in region.ops:
        yield op
        for inner in op.regions():
            yield from walk(inner)


def walk_function(function: Function) -> Iterator[Operation]:
    """All ops of a function."""
    return walk(function.body)


def definitions(region: Region) -> dict[Value, Operation]:
    """The op that defines each result in the region, nested ones included."""
    return {value: op for op in walk(region) for value in op.results}


def count_uses(region: Region) -> dict[Value, int]:
    """How often each value is an operand."""
    uses: dict[Value, int] = {}
    for op in walk(region):
        for value in op.operand_values():
            uses[value] = uses.get(value, 0) + 1
    return uses


def values_used_by(ops: Iterable[Operation]) -> Iterator[Value]:
    """The operands of ops and of everything inside them."""
    for op in walk(Region((), tuple(ops))):
        yield from op.operand_values()


class Substitution:
    """A growing map from old to new values, applied while rebuilding regions in program order."""

    def __init__(self) -> None:
        self._map: dict[Value, Value] = {}

    def __setitem__(self, old: Value, new: Value) -> None:
        self._map[old] = new

    def __call__(self, value: Value) -> Value:
        """The value that now stands for ``value``."""
        while value in self._map:
            value = self._map[value]
        return value


def rewrite_region(region: Region, rewrite: Rewrite, substitution: Substitution) -> Region:
    """Rebuild a region: substitute operands, rebuild nested regions, then ``rewrite`` each op.

    Returns the same object when nothing changed.
    """
    new_ops: list[Operation] = []
    for op in region.ops:
        current = op.with_operands(substitution)
        if regions := current.regions():
            inner = [rewrite_region(region, rewrite, substitution) for region in regions]
            current = current.with_regions(tuple(inner))
        replacement = rewrite(current)
        if isinstance(replacement, Operation):
            new_ops.append(replacement)
        elif replacement is not None:
            new_ops.extend(replacement)
    return region.with_ops(new_ops)


def rewrite_function(
    function: Function, rewrite: Rewrite, substitution: Substitution | None = None
) -> Function:
    """Rebuild a function's body with ``rewrite``."""
    return function.with_body(
        rewrite_region(function.body, rewrite, substitution or Substitution())
    )


def value_symbols(values: Iterable[Value]) -> frozenset[str]:
    """All symbols in the shapes of the tiles among ``values``."""
    return frozenset(
        symbol
        for value in values
        if isinstance(value.type, TileType)
        for dim in value.type.shape
        for symbol in dim.symbols
    )


def shape_symbols(op: Operation) -> frozenset[str]:
    """All symbols in the shapes of an op's operands and results."""
    return value_symbols((*op.operand_values(), *op.results))


def bound_blocks(op: Operation) -> frozenset[str]:
    """The blocks whose tiles an op steps over."""
    return frozenset(filter(None, op.blocks)) if isinstance(op, (Grid, Loop)) else frozenset()


def values_defined_in(region: Region) -> Iterator[Value]:
    """The arguments and results of a region, nested ones included."""
    yield from region.args
    for op in walk(region):
        yield from op.results
        for inner in op.regions():
            yield from inner.args


Definitions = Callable[[Value], "Operation | None"]
"""What defines a value; None for parameters and region arguments."""
Replacement = Value | Sequence[Operation]
Rule = Callable[[Operation, Definitions], "Replacement | None"]

STEP_LIMIT = 100
"""Rewrites of one op before we call the rules circular."""


class _RuleDriver:
    """Applies rules to each op, and to the ops they produce, until none matches."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = rules
        self._definitions: dict[Value, Operation] = {}
        self.substitution = Substitution()

    def rewrite(self, op: Operation) -> list[Operation] | Operation | None:
        finished: list[Operation] = []
        waiting = [op]
        steps = 0
        while waiting:
            current = waiting.pop(0)
            replacement = self._match(current)
            if replacement is None:
                self._finish(current, finished)
                continue
            steps += 1
            if steps > STEP_LIMIT:
                raise RuntimeError(f"rewrite rules do not come to an end at {current.name}")
            if isinstance(replacement, Value):
                self.substitution[current.result] = replacement
                continue
            for before, after in zip(current.results, replacement[-1].results):
                if before is not after:
                    self.substitution[before] = after
            waiting[:0] = replacement
        return finished[0] if finished == [op] else finished

    def _match(self, op: Operation) -> Replacement | None:
        definitions = self._definitions.get
        for rule in self._rules:
            if (replacement := rule(op, definitions)) is not None:
                return replacement
        return None

    def _finish(self, op: Operation, finished: list[Operation]) -> None:
        # A replacement made before a later one of the same op may still name a replaced value.
        op = op.with_operands(self.substitution)
        for result in op.results:
            self._definitions[result] = op
        finished.append(op)


def apply_rules(function: Function, rules: Sequence[Rule]) -> Function:
    """Rewrite a function with rules until none matches; the same object when none ever did."""
    driver = _RuleDriver(rules)
    return rewrite_function(function, driver.rewrite, driver.substitution)
