"""Tiles that stand in shared memory, besides the operands of products.

Triton starts all loads of a loop ahead that a product of the loop depends on, through whatever
arithmetic, and keeps each in shared memory until the turn that computes with it.

Tiles whose axes change places go through shared memory as a whole: Triton lays out such a tile for
its load in one order and for its store in another. Operands of products are turned around in place,
and results of products in parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tilesmith.backends.triton.model.launch import PLAIN_LOOP, Launch, OperandPipeline
from tilesmith.ir.ops.control_flow import Loop
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Load
from tilesmith.ir.ops.shape import Permute
from tilesmith.ir.types import Value
from tilesmith.schedule.facts.accesses import AccessFact
from tilesmith.schedule.facts.outline import FunctionOutline
from tilesmith.schedule.model.program_work import Operand, Product
from tilesmith.targets import Target


class LoadPipeline(OperandPipeline):
    """The products of one function, with all that arrives ahead for them."""

    def __init__(
        self, outline: FunctionOutline, target: Target, accesses: Iterable[AccessFact]
    ) -> None:
        super().__init__(outline, target, accesses)
        self._fed: dict[Load, Product] = {
            load: product
            for product in self.products
            if product.loop is not None
            for load in self._loads_behind(product, product.loop)
        }

    def _loads_behind(self, product: Product, loop: Loop) -> Iterator[Load]:
        """Loads of the same loop that a product depends on, but for operands themselves."""
        pending: list[Value] = [product.dot.lhs, product.dot.rhs]
        seen: set[Value] = set()
        while pending:
            value = pending.pop()
            op = self._outline.definitions.get(value)
            site = self._sites.get(id(op))
            if value in seen or op is None or site is None or site.innermost is not loop:
                continue
            seen.add(value)
            pending.extend(op.operand_values())
            if isinstance(op, Load) and value not in self.operands:
                yield op

    def ahead(self, load: Load, loop: Loop | None, launch: Launch) -> int:
        """Tiles of a load in flight that no product reads as they are."""
        least = int(load.slot in launch.descriptors)
        if load not in self._fed or loop is None:
            return least
        product, fact = self._fed[load], self._facts[load.slot]
        source = Operand(load.result, load, loop, fact.widest_vector, fact.contiguous_dim)
        buffers = self.buffers(product, source, launch)
        if buffers and self.is_asynchronous(product, launch):
            # Only what the product itself reads must stay until it is done.
            buffers -= max(1, launch.loops.get(loop.slot, PLAIN_LOOP).unroll_factor)
        return max(least, buffers)


def turned_tiles(outline: FunctionOutline) -> tuple[Value, ...]:
    """What is turned around; none in kernels with products."""
    if outline.ops(Dot):
        return ()
    return tuple(op.x for op in outline.ops(Permute))
