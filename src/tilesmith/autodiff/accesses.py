"""Subscripts of loads and stores, as the language writes them."""

from __future__ import annotations

from collections.abc import Callable

from tilesmith.autodiff.outline import Outline
from tilesmith.autodiff.scope import Scope, Text
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.elementwise import Cast
from tilesmith.ir.ops.indexing import Arange, TileIndex
from tilesmith.ir.ops.memory import Atomic, Load, Store
from tilesmith.ir.ops.shape import Broadcast, ExpandDims
from tilesmith.ir.types import Value

Access = Load | Store | Atomic


class Accesses:
    """Writes the accesses of one function; ``value`` gives expressions for values."""

    def __init__(self, outline: Outline, value: Callable[[Value, Scope], Text]) -> None:
        self._outline = outline
        self._value = value

    def read(self, op: Access, name: str, scope: Scope) -> str:
        """A load from a tensor at the place of an access."""
        self._check(op)
        if op.mask is None:
            return f"{name}[{', '.join(self.subscript(op, scope)) or '()'}]"
        mask = self._value(op.mask, scope).code
        return f"hl.load({name}, {self._listed(op, scope)}, extra_mask={mask})"

    def write(self, op: Access, name: str, code: str, scope: Scope) -> str:
        """A store at the place of an access."""
        self._check(op)
        if op.mask is None:
            return f"{name}[{', '.join(self.subscript(op, scope)) or '()'}] = {code}"
        mask = self._value(op.mask, scope).code
        return f"hl.store({name}, {self._listed(op, scope)}, {code}, extra_mask={mask})"

    def add(self, op: Access, name: str, code: str, scope: Scope) -> str:
        """An atomic addition at the place of an access; masked lanes add nothing."""
        self._check(op)
        if op.mask is not None:
            code = f"torch.where({self._value(op.mask, scope).code}, {code}, 0.0)"
        return f"hl.atomic_add({name}, {self._listed(op, scope)}, {code})"

    def _check(self, op: Access) -> None:
        if isinstance(op, (Load, Store)) and op.bases is not None:
            raise self._outline.refusal("it uses tensors by their addresses")

    def _listed(self, op: Access, scope: Scope) -> str:
        places = ["slice(None)" if place == ":" else place for place in self.subscript(op, scope)]
        return f"[{', '.join(places)}]"

    def subscript(self, op: Access, scope: Scope) -> list[str]:
        """One entry for each dimension of the tensor."""
        plain = [self._plain(op, number, scope) for number in range(len(op.indices))]
        axes = [axis for index in op.indices for axis in _axes(index)]
        if all(plain) and axes == sorted(set(axes)) and len(axes) == self._rank(op):
            return [str(text) for text in plain]
        return [self._value(index, scope).code for index in op.indices]

    def _rank(self, op: Access) -> int:
        return op.result.tile.rank if isinstance(op, Load) else op.value.tile.rank

    def _plain(self, op: Access, number: int, scope: Scope) -> str | None:
        """A tile, a whole dimension or one index."""
        base = self._source(op.indices[number])
        made = self._outline.definition(base)
        if not base.tile.rank:
            return self._value(base, scope).code
        if isinstance(made, TileIndex):
            return self.tile_of(made, scope)
        length = base.tile.shape[0].constant if isinstance(made, Arange) else None
        is_whole = length is not None and length == op.tensor.tensor.shape[number]
        return ":" if is_whole else None

    def _source(self, index: Value) -> Value:
        made: Operation | None = self._outline.definition(index)
        while isinstance(made, (ExpandDims, Broadcast, Cast)):
            index = made.x
            made = self._outline.definition(index)
        return index

    def tile_of(self, op: TileIndex, scope: Scope) -> str | None:
        """The variable whose positions these are, if it is one."""
        where: Scope | None = scope
        while where is not None:
            if op.begin in where.begins:
                return where.begins[op.begin]
            where = where.parent
        return None

    def is_met_once(self, op: Load, around: tuple[Operation, ...]) -> bool:
        """Whether no two turns of the loops around a load touch the same element."""
        sources = [self._source(index) for index in op.indices]
        begins: set[Value] = set()
        for source in sources:
            made = self._outline.definition(source)
            begins.add(made.begin if isinstance(made, TileIndex) else source)
        varying = {arg for loop in around for arg in self._outline.indices_of(loop)}
        return varying <= begins


def _axes(index: Value) -> list[int]:
    return [axis for axis, dim in enumerate(index.tile.shape) if not dim.is_one]
