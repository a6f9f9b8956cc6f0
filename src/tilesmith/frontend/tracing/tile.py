"""``Tile``: the loop variable of ``hl.tile``, usable as an index, as a size and for its position.

``tile + integer`` is all the arithmetic tiles have. Other operators are there to say so: without
them Python would complain about its own types, or compare tiles by identity and give an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import tilesmith.exc as errors
from tilesmith.diagnostics.wording import kind_of
from tilesmith.frontend.tracing.emission import apply, emit, integer
from tilesmith.frontend.tracing.tracer import current_tracer
from tilesmith.frontend.tracing.values import Scalar, TileValue, TorchOperand, size_of_dim
from tilesmith.ir.ops.indexing import TileIndex
from tilesmith.ir.types import ONE, Dim, TileType, Value

Operator = Callable[..., Any]


def no_arithmetic(form: str) -> errors.TileArithmetic:
    """The error about an expression, e.g. ``tile * 2``."""
    return errors.TileArithmetic(form=form)


def _shown(operand: Any) -> str:
    return repr(operand) if isinstance(operand, (int, float)) else f"<{kind_of(operand)}>"


def _refused(form: str) -> Operator:
    """Refuses an expression; ``{}`` in it is the other operand."""

    def refuse(self: TileOperators, *others: Any) -> Any:
        raise no_arithmetic(form.format(*map(_shown, others)))

    return refuse


class TileOperators(TorchOperand):
    """Refuses to be a number, a condition or an operand."""

    __radd__ = _refused("{} + tile")
    __sub__, __rsub__ = _refused("tile - {}"), _refused("{} - tile")
    __mul__, __rmul__ = _refused("tile * {}"), _refused("{} * tile")
    __truediv__, __rtruediv__ = _refused("tile / {}"), _refused("{} / tile")
    __floordiv__, __rfloordiv__ = _refused("tile // {}"), _refused("{} // tile")
    __mod__, __rmod__ = _refused("tile % {}"), _refused("{} % tile")
    __divmod__, __rdivmod__ = _refused("divmod(tile, ...)"), _refused("divmod(..., tile)")
    __pow__, __rpow__ = _refused("tile ** {}"), _refused("{} ** tile")
    __matmul__, __rmatmul__ = _refused("tile @ {}"), _refused("{} @ tile")
    __and__, __rand__ = _refused("tile & {}"), _refused("{} & tile")
    __or__, __ror__ = _refused("tile | {}"), _refused("{} | tile")
    __xor__, __rxor__ = _refused("tile ^ {}"), _refused("{} ^ tile")
    __lshift__, __rlshift__ = _refused("tile << {}"), _refused("{} << tile")
    __rshift__, __rrshift__ = _refused("tile >> {}"), _refused("{} >> tile")
    __lt__, __le__ = _refused("tile < {}"), _refused("tile <= {}")
    __gt__, __ge__ = _refused("tile > {}"), _refused("tile >= {}")
    __neg__, __pos__, __invert__ = _refused("-tile"), _refused("+tile"), _refused("~tile")
    __abs__, __round__ = _refused("abs(tile)"), _refused("round(tile)")
    __int__, __float__ = _refused("int(tile)"), _refused("float(tile)")
    __index__ = _refused("int(tile)")
    __bool__ = _refused("bool(tile)")

    def __eq__(self, other: object) -> bool:
        return self._same_as("==", other)

    def __ne__(self, other: object) -> bool:
        return self._same_as("!=", other)

    def _same_as(self, symbol: str, other: object) -> bool:
        if isinstance(other, (int, float)):
            raise no_arithmetic(f"tile {symbol} {_shown(other)}")
        # Device values refuse in their turn; tiles among other objects are found by identity.
        return NotImplemented

    __hash__ = object.__hash__


class Tile(TileOperators):
    """One tile of an index range.

    Example:
        ``for t in hl.tile(n): out[t] = x[t] + t.begin``
    """

    user_name = "a tile"

    def __init__(
        self,
        block: str | None,
        begin: Value,
        first: Value,
        end: Value,
        lengths: TileValue | None = None,
    ) -> None:
        self.block = block
        """Name of the block symbol; None when the block size is fixed to 1."""
        self._begin = begin
        self._first = first
        self._end = end
        self.lengths = lengths
        """How far a jagged tile reaches in each lane of enclosing tiles."""

    @property
    def dim(self) -> Dim:
        """The axis this tile spans."""
        return ONE if self.block is None else Dim.of(self.block)

    @property
    def begin(self) -> Scalar:
        """First index of this tile."""
        return Scalar(self._begin)

    @property
    def block_size(self) -> Any:
        """The configured size, never clamped."""
        return size_of_dim(self.dim)

    @property
    def end(self) -> Scalar:
        """One past the last valid index."""
        if self.block is None:
            return integer("add", self.begin, 1)
        stop = integer("add", self.begin, self.block_size)
        result = integer("minimum", stop, self.range_end)
        result.sum_of = (self.begin, self.block_size)
        return result

    @property
    def range_begin(self) -> Scalar:
        """The first index of the whole loop."""
        return Scalar(self._first)

    @property
    def range_end(self) -> Scalar:
        """One past the last index of the whole loop."""
        return Scalar(self._end)

    @property
    def id(self) -> Scalar:
        """Position of this tile in the whole index space: ``begin // block_size``."""
        if self.block is None:
            return self.begin
        return integer("floordiv", self.begin, self.block_size)

    @property
    def count(self) -> Scalar:
        """Number of tiles of the loop."""
        span = integer("sub", self.range_end, Scalar(self._first))
        if self.block is None:
            return span
        rounded = integer("add", span, integer("sub", self.block_size, 1))
        return integer("floordiv", rounded, self.block_size)

    @property
    def index(self) -> TileValue:
        """``begin + [0, 1, ...)``, not clamped."""
        if self.block is None:
            return TileValue(self._begin).unsqueeze(0)
        kind = TileType(self._begin.tile.dtype, (self.dim,))
        return emit(TileIndex, kind, begin=self._begin, block=self.block)

    def __add__(self, other: Any) -> TileValue:
        if not isinstance(other, (int, Scalar)):
            raise no_arithmetic(f"tile + <{kind_of(other)}>")
        return apply("add", self.index, other)

    def __repr__(self) -> str:
        return f"<tile {self.block or '1'}>"


class OnlyTile(Tile):
    """The variable of a loop over one range in a list: a sequence of one tile, and that tile."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, position: Any) -> Any:
        return (self,)[position]

    def __iter__(self) -> Iterator[Tile]:
        yield self


def _reader(name: str, text: str) -> Callable[[Tile], Any]:
    """The function of the language that stands for a property of tiles."""

    def read(tile: Tile) -> Any:
        current_tracer(f"hl.tile_{name}")
        if not isinstance(tile, Tile):
            raise errors.IncorrectTileUsage(
                problem=f"hl.tile_{name} takes a tile, not {kind_of(tile)}",
                fix="pass the variable of a `for ... in hl.tile(...)` loop",
            )
        return getattr(tile, name)

    read.__name__, read.__doc__ = f"tile_{name}", f"{text}: ``tile.{name}``."
    return read


tile_index = _reader("index", "Indices of a tile")
tile_begin = _reader("begin", "First index of a tile")
tile_end = _reader("end", "One past the last valid index of a tile")
tile_block_size = _reader("block_size", "Block size of a tile")
tile_id = _reader("id", "Number of a tile, from 0")
