"""Several names that get each other's values at once: ``a, b, c = b, c, a``."""

from __future__ import annotations

from dataclasses import dataclass

from tests.fuzzing.program import Meaning, Value


@dataclass(frozen=True)
class Rotate:
    """``results = operands``, of one type and with the same axes; an operand may come twice."""

    results: tuple[Value, ...]
    operands: tuple[Value, ...]

    @property
    def axes(self) -> tuple[str, ...]:
        """Those of each."""
        return self.results[0].axes

    def lines(self) -> list[str]:
        left, right = (", ".join(x.name for x in xs) for xs in (self.results, self.operands))
        return [f"{left} = {right}"]

    def evaluate(self, meaning: Meaning) -> None:
        found = [meaning.values[operand.name] for operand in self.operands]
        meaning.values.update({x.name: whole for x, whole in zip(self.results, found)})
