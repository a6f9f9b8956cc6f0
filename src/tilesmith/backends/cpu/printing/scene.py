"""What the printers of one grid share: names, lines, scalars as text, and lengths of axes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from tilesmith.backends.cpu.coordinates import Place
from tilesmith.backends.cpu.nests import Program
from tilesmith.backends.cpu.printing.expressions import Expr, number, product
from tilesmith.backends.cpu.printing.lines import Lines
from tilesmith.backends.cpu.printing.names import Names
from tilesmith.backends.cpu.virtual_tiles import Closure, VirtualTiles
from tilesmith.diagnostics.location import SourceLocation
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.types import Dim
from tilesmith.ir.values import Value
from tilesmith.schedule.schedule import Schedule


@dataclass(frozen=True)
class Scene:
    """The place where steps are printed."""

    tiles: VirtualTiles
    program: Program
    schedule: Schedule
    block_sizes: Mapping[str, int]
    names: Names
    lines: Lines
    users: Mapping[Value, list[Operation]]
    scalars: dict[Value, Expr]
    """What stands for each scalar: a name, a number, or an expression used just once."""
    sources: dict[Value, tuple[SourceLocation, ...]]
    """The user's lines behind scalars that are part of other expressions."""
    lengths: dict[str, Expr]
    """How long the axes of blocks are here, when that is not the block's size."""
    packed: Collection[Dot] = ()
    """Products whose right operand was packed before."""

    def length(self, dim: Dim) -> Expr:
        """How many elements an axis has here."""
        return self._product(dim, self.lengths)

    def full_length(self, dim: Dim) -> Expr:
        """How many elements an axis has at most."""
        return self._product(dim, {})

    def _product(self, dim: Dim, known: Mapping[str, Expr]) -> Expr:
        factors = [number(f) if isinstance(f, int) else known.get(f) for f in dim.factors]
        symbols = map(str, dim.factors)
        return product([f or self.block_size(symbol) for f, symbol in zip(factors, symbols)])

    def block_size(self, name: str) -> Expr:
        """How long a whole tile is: a constant of the schedule, or a runtime size."""
        return number(self.block_sizes[name]) if name in self.block_sizes else Expr(name)

    def lines_behind(self, places: Iterable[Place]) -> list[SourceLocation]:
        """The user's lines that elements are computed by."""
        return self.lines_of(self.tiles.join(list(places)))

    def lines_of(self, closure: Closure) -> list[SourceLocation]:
        """The user's lines of everything computed for an element."""
        scalars = [loc for value, _ in closure.leaves for loc in self.sources.get(value, ())]
        return [*scalars, *(op.loc for op in closure.nodes.values())]

    def buffer(self, value: Value) -> str:
        """The name of the memory that a stored tile lies in."""
        return self.names.of(self.program.buffer_of(value))
