"""The role that computes, where a turn is cut in two: see ``order.py``.

Nothing is in flight where the loop turns but the result that the next turn begins with, and that
has been waited for: the assembler would take products one by one otherwise.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager

from tilesmith.backends.triton.warp_roles.between import StepFunction, StepPart
from tilesmith.backends.triton.warp_roles.computing import ComputeRole
from tilesmith.backends.triton.warp_roles.copies import Shared
from tilesmith.backends.triton.warp_roles.emitter import RoleEmitter
from tilesmith.backends.triton.warp_roles.order import TurnOrder, find_vectors
from tilesmith.backends.triton.warp_roles.plan import Product, RolePlan
from tilesmith.backends.triton.warp_roles.protocol import EARLY, LATE
from tilesmith.backends.triton.warp_roles.segments import Segments, emit_bounds
from tilesmith.ir.operation import Operation

FOLLOWING = "following"
"""The event of the turn after this one; the last turn has itself: nothing reads that result."""


def shares_loop(plan: RolePlan) -> bool:
    """Whether turns with masks and without share a loop.

    With vectors to read, ptxas has too few registers for two copies of it and takes products one
    by one: 2.7 ms instead of 2.0 for keys and values of 256 heads of 4096 x 64.
    """
    return bool(find_vectors(plan))


def find_parts(plan: RolePlan, order: TurnOrder, copied: Container[Operation]) -> list[StepPart]:
    """Both functions of a turn; vectors that are copied come to them in variables."""
    is_one_loop = shares_loop(plan)
    first, second = ([op for op in ops if op not in copied] for ops in (order.first, order.second))
    return [
        StepPart(first, order.first_sums, second, is_one_loop),
        StepPart(second, order.second_sums, (), is_one_loop),
    ]


class StaggeredRole(ComputeRole):
    """What a group of four warps runs for one tile, each turn in two parts."""

    def __init__(
        self,
        emitter: RoleEmitter,
        shared: Shared,
        order: TurnOrder,
        steps: Sequence[StepFunction],
    ) -> None:
        super().__init__(emitter, shared, None)
        self._order = order
        self._steps = steps
        self._is_one_loop = shares_loop(shared.plan)
        self._segments = _joined([step.segments for step in steps])
        for step in steps:
            # They come in variables, whatever the step makes them of.
            emitter.uses.inlined.difference_update(step.outputs)

    def _emit_loop(self) -> None:
        """The product ahead is started before the first turn, then by each turn for the next."""
        emitter, plan, order = self._emitter, self._plan, self._order
        names = {p: emitter.spelling.names.fresh(self._hint(p.dot)) for p in plan.early}
        flying = {p: emitter.spelling.names.fresh(f"next_{name}") for p, name in names.items()}
        if self._segments:
            emit_bounds(emitter, plan, self._segments)
        with emitter.writer.block("if turns > 0"):
            self._wait_ring(EARLY, "step")
            self._products.start(order.ahead, "step", flying[order.ahead])
            self._products.wait_products([names[order.ahead]], [flying[order.ahead]], 0)
            with self._turns():
                self._start_step(list(names.values()), "turn")
                self._emit_first([flying[p] for p in order.deferred])
                self._emit_second(
                    [names[p] for p in order.deferred], [flying[p] for p in order.deferred]
                )
                self._emit_end(names[order.ahead], flying[order.ahead])

    def _hint(self, op: Operation) -> str:
        return self._emitter.name_hint(op.results[0])

    @contextmanager
    def _turns(self) -> Iterator[None]:
        """All turns, those without masks in a loop of their own."""
        writer, segments = self._emitter.writer, self._segments
        if not segments or self._is_one_loop:
            with writer.block("for turn in range(turns)"):
                yield
            return
        first = 0 if segments.has_lower_bound(self._plan) else 1
        last = 3 if segments.has_upper_bound(self._plan) else 2
        with writer.block(f"for part in gl.static_range({first}, {last})"):
            self._line("begin = 0 if part == 0 else full_from if part == 1 else full_to")
            self._line("end = full_from if part == 0 else full_to if part == 1 else turns")
            with writer.block("for turn in range(begin, end)"):
                yield

    @property
    def _is_masked(self) -> str:
        """Whether a turn needs masks: known at compile time where such turns have loops."""
        if not self._is_one_loop:
            return "part != 1"
        bounds = ["turn < full_from"] if self._segments.has_lower_bound(self._plan) else []
        bounds += ["turn >= full_to"] if self._segments.has_upper_bound(self._plan) else []
        return " or ".join(bounds)

    def _wait_ring(self, kind: str, event: str) -> None:
        if kind in self._shared.rings:
            self._line(self._shared.rings[kind].wait_full(event))

    def _emit_first(self, flying: Sequence[str]) -> None:
        """Deferred products are in flight while the first part runs."""
        order, products = self._order, self._products
        self._wait_ring(LATE, "step + turn")
        for product, name in zip(order.deferred, flying):
            products.start(product, "step + turn", name)
        products.read_vectors(order.first, LATE)
        self._call_step(self._steps[0], self._is_masked)
        for product in order.first_sums:
            products.start_sum(product, "step + turn")

    def _emit_second(self, names: Sequence[str], flying: Sequence[str]) -> None:
        """What needs the deferred products, and the sums after it."""
        order, products = self._order, self._products
        products.wait_products(names, flying, len(order.first_sums))
        products.read_vectors(order.second, LATE)
        self._release_after(order.deferred)
        self._call_step(self._steps[1], self._is_masked)
        for product in order.second_sums:
            products.start_sum(product, "step + turn")
        # Their operands leave registers before the next turn's result needs some.
        self._wait_sums(order.first_sums, len(order.second_sums))
        self._release_after(order.first_sums)

    def _release_after(self, done: Sequence[Product]) -> None:
        """Hand tiles back where these products were the last to read them."""
        if done == self._order.last_readers:
            self._products.release(LATE, "step + turn")

    def _wait_sums(self, sums: Sequence[Product], left: int, *more: tuple[str, str]) -> None:
        """Until sums are done, and products with the given names before and after."""
        names, held = self._products.late_names(sums)
        flying = [f"next_{name}" for name in names]
        after, before = [item[0] for item in more], [item[1] for item in more]
        if sums or more:
            self._products.wait_products([*after, *names, *held], [*before, *flying, *held], left)

    def _emit_end(self, name: str, flying: str) -> None:
        """Start what the next turn begins with; then everything is waited for."""
        order, products = self._order, self._products
        self._line(f"{FOLLOWING} = step + gl.minimum(turn + 1, turns - 1)")
        self._wait_ring(EARLY, FOLLOWING)
        products.start(order.ahead, FOLLOWING, flying)
        self._wait_sums(order.second_sums, 0, (name, flying))
        self._release_after(order.second_sums)
        products.release(EARLY, "step + turn")


def _joined(parts: Sequence[Segments]) -> Segments:
    """What is selected in either part of a turn."""
    joined = Segments()
    for part in parts:
        joined.selections |= part.selections
        joined.conditions += part.conditions
        joined.has_partial_turn |= part.has_partial_turn
    return joined
