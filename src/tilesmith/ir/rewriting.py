"""Rules that replace one op at a time, and the driver that applies them in program order.

A rule looks at an op and at what defines its operands. It answers None (no match), a value to
use instead of the op's only result, or ops to put in the op's place, the last of which gives
the op's results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation
from tilesmith.ir.traversal import Substitution, rewrite_function
from tilesmith.ir.values import Value

Definitions = Callable[[Value], "Operation | None"]
"""What defines a value; None for parameters and region arguments."""
Replacement = Value | Sequence[Operation]
Rule = Callable[[Operation, Definitions], "Replacement | None"]

STEP_LIMIT = 100
"""Rewrites of one op before we call the rules circular."""


class _Driver:
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
            else:
                self._redirect(current, replacement[-1])
                waiting[:0] = replacement
        return finished[0] if finished == [op] else finished

    def _match(self, op: Operation) -> Replacement | None:
        for rule in self._rules:
            replacement = rule(op, self._definitions.get)
            if replacement is not None:
                return replacement
        return None

    def _finish(self, op: Operation, finished: list[Operation]) -> None:
        # A replacement made before a later one of the same op may still name a replaced value.
        op = op.with_operands(self.substitution)
        for result in op.results:
            self._definitions[result] = op
        finished.append(op)

    def _redirect(self, old: Operation, new: Operation) -> None:
        for before, after in zip(old.results, new.results):
            if before is not after:
                self.substitution[before] = after


def apply_rules(function: Function, rules: Sequence[Rule]) -> Function:
    """Rewrite a function with rules until none matches; the same object when none ever did."""
    driver = _Driver(rules)
    return rewrite_function(function, driver.rewrite, driver.substitution)
