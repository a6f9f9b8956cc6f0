"""The matrix products of a function, with where their operands come from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tilesmith.ir.ops.control_flow import Loop
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.ops.memory import Load
from tilesmith.ir.types import Dim
from tilesmith.ir.values import Value
from tilesmith.schedule.facts.accesses import AccessFact
from tilesmith.schedule.facts.dataflow import is_whole_view
from tilesmith.schedule.facts.outline import FunctionOutline, Site


@dataclass(frozen=True)
class Operand:
    """One side of a product: where it comes from."""

    value: Value
    load: Load | None
    loop: Loop | None
    """The sequential loop of the load."""
    width: int = 1
    """Elements that a thread can load at once, as far as strides tell."""
    along: Dim | None = None
    """The axis that runs along memory."""


@dataclass(frozen=True)
class Product:
    """One matrix product with its operands."""

    dot: Dot
    loop: Loop | None
    lhs: Operand
    rhs: Operand

    @property
    def is_exact(self) -> bool:
        """Whether it is computed without matrix units."""
        bits = self.dot.lhs.tile.dtype.bits
        return bits > 32 or (bits == 32 and self.dot.precision == "ieee")


class Products:
    """All products of one function."""

    def __init__(self, outline: FunctionOutline, accesses: Iterable[AccessFact]) -> None:
        self._outline = outline
        self._facts = {fact.slot: fact for fact in accesses if fact.kind == "load"}
        self._sites = {id(site.op): site for site in outline.sites}
        self.products = tuple(
            self._product(site, site.op) for site in outline.sites if isinstance(site.op, Dot)
        )
        self.operands = {
            value
            for product in self.products
            for operand in (product.lhs, product.rhs)
            if operand.load is not None
            for value in self._chain(operand.value)
        }
        """Values on the way from a load to a matrix product."""

    def _product(self, site: Site, dot: Dot) -> Product:
        lhs, rhs = self._operand(dot.lhs), self._operand(dot.rhs)
        return Product(dot, site.innermost, lhs, rhs)

    def _operand(self, value: Value) -> Operand:
        *_, last = self._chain(value)
        load = self._outline.definitions.get(last)
        if not isinstance(load, Load):
            return Operand(value, None, None)
        loop, fact = self._sites[id(load)].innermost, self._facts[load.slot]
        return Operand(value, load, loop, fact.vector_width, fact.contiguous_dim)

    def _chain(self, value: Value) -> list[Value]:
        chain = [value]
        op = self._outline.definitions.get(value)
        while is_whole_view(op):
            chain.extend(op.operand_values())
            op = self._outline.definitions.get(chain[-1])
        return chain
