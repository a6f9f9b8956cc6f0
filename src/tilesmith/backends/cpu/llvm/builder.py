"""Writes LLVM IR text: instructions, structured loops and branches.

Values are in SSA form with phis at loop heads, so the code needs no optimisation passes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilesmith.backends.cpu.llvm.instructions import IndexArithmetic, MemoryInstructions
from tilesmith.backends.cpu.llvm.registers import Register, index

Body = Callable[[Register, tuple[Register, ...]], Sequence[Register] | None]


class Builder(IndexArithmetic, MemoryInstructions):
    """Writes one function with loops and branches."""

    def loop(
        self,
        begin: Register,
        end: Register,
        step: Register,
        body: Body,
        carried: Sequence[Register] = (),
    ) -> tuple[Register, ...]:
        """``for i in range(begin, end, step)`` with a positive step.

        ``body`` takes the index and the carried values and gives the next ones; the result is
        what they are after the last iteration.
        """

        def condition(state: tuple[Register, ...]) -> Register:
            return self.compare("slt", state[0], end)

        def iteration(state: tuple[Register, ...]) -> list[Register]:
            following = body(state[0], state[1:]) or ()
            return [self.binary("add nsw", state[0], step), *following]

        return self.repeat(condition, iteration, (begin, *carried))[1:]

    def repeat(
        self,
        condition: Callable[[tuple[Register, ...]], Register],
        body: Callable[[tuple[Register, ...]], Sequence[Register]],
        carried: Sequence[Register],
    ) -> tuple[Register, ...]:
        """``while condition(state): state = body(state)``; gives the final state."""
        head, inside, after = map(self.fresh_label, ("head", "body", "after"))
        before = self._label
        self.jump(head)
        self.label(head)
        state = tuple(self.new(value.type, "p") for value in carried)
        place = len(self._lines)
        self.branch(condition(state), inside, after)
        self.label(inside)
        following = body(state)
        last = self._label
        self.jump(head)
        self._lines[place:place] = [
            f"  {phi.text} = phi {phi.type} [ {old.text}, %{before} ], [ {new.text}, %{last} ]"
            for phi, old, new in zip(state, carried, following, strict=True)
        ]
        self.label(after)
        return state

    def if_else(
        self,
        condition: Register,
        then: Callable[[], Sequence[Register] | None],
        otherwise: Callable[[], Sequence[Register] | None] | None = None,
    ) -> tuple[Register, ...]:
        """A branch; gives the values of the branch taken."""
        yes, no, after = map(self.fresh_label, ("then", "else", "after"))
        self.branch(condition, yes, no)
        ends: list[tuple[str, Sequence[Register]]] = []
        for name, make in ((yes, then), (no, otherwise)):
            self.label(name)
            values = (make() if make is not None else None) or ()
            ends.append((self._label, values))
            self.jump(after)
        self.label(after)
        (first, ours), (second, theirs) = ends
        return tuple(
            self.value(x.type, f"phi {x.type} [ {x.text}, %{first} ], [ {y.text}, %{second} ]")
            for x, y in zip(ours, theirs, strict=True)
        )

    def count_up(self, count: Register, body: Callable[[Register], None]) -> None:
        """``for i in range(count)``."""

        def step(position: Register, _: tuple[Register, ...]) -> None:
            body(position)

        self.loop(index(0), count, index(1), step)
