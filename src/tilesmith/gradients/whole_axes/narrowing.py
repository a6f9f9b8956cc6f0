"""A value computed again for one tile of axes that it has whole.

What each op asks of its operands follows from the roles of their axes: a kept axis is cut there,
too; one that is summed up, or repeated, is not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tilesmith.ir import axis_roles as forms
from tilesmith.ir.axis_roles import Role
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.indexing import Arange
from tilesmith.ir.tile_writer import TileWriter
from tilesmith.ir.types import Dim, TileType, Value

LANE_BY_LANE = (
    forms.Kept, forms.Uniform, forms.Inserted, forms.Repeated, forms.Permuted, forms.Picked,
    forms.Gathered, forms.Combined, forms.Contracted, forms.Accessed,
)  # fmt: skip
"""Forms of ops that give some lanes of a kept axis without the others."""


class CannotCutError(Exception):
    """A value needs whole axes."""


@dataclass(frozen=True)
class TiledAxis:
    """The tile that stands for a whole axis."""

    begin: Value
    block: str

    @property
    def dim(self) -> Dim:
        """How long it is."""
        return Dim.of(self.block)


Cuts = Mapping[int, TiledAxis]
"""By the number of an axis."""


class Narrowing:
    """Writes ops again for tiles of whole axes."""

    def __init__(self, known: Mapping[Value, Operation], writer: TileWriter) -> None:
        self._known = known
        self._writer = writer
        self._made: dict[tuple[Value, tuple[tuple[int, TiledAxis], ...]], Value] = {}

    def of(self, value: Value, cuts: Cuts) -> Value:
        """The value with tiles along some axes; itself if there are none."""
        if not cuts:
            return value
        key = value, tuple(sorted(cuts.items(), key=lambda item: item[0]))
        if key not in self._made:
            self._made[key] = self._write(value, cuts)
        return self._made[key]

    def operands(self, op: Operation, cuts: Cuts) -> Operation:
        """The op over narrowed operands."""
        if not isinstance(op.form, LANE_BY_LANE):
            raise CannotCutError
        values: list[Value] = []
        for value, roles in zip(op.operand_values(), op.axis_roles()):
            kept = [(i, one.to) for i, one in enumerate(roles) if one.role is Role.KEPT]
            values.append(self.of(value, {i: cuts[to] for i, to in kept if to in cuts}))
        return op.with_operand_list(values)

    def _write(self, value: Value, cuts: Cuts) -> Value:
        op = self._known.get(value)
        if isinstance(op, Arange):
            return self._writer.tile_index(cuts[0].begin, cuts[0].block)
        if op is None or len(op.results) != 1:
            raise CannotCutError
        made = value.like(_cut(value.tile, cuts))
        self._writer.insert(replace(self.operands(op, cuts), results=(made,)))
        return made


def _cut(kind: TileType, cuts: Cuts) -> TileType:
    return kind.with_shape(
        tuple(cuts[i].dim if i in cuts else dim for i, dim in enumerate(kind.shape))
    )
