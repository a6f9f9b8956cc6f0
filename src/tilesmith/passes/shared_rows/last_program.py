"""What the last program of a panel does, where all leave their parts of its rows in memory."""

from __future__ import annotations

from collections.abc import Callable

from tilesmith.dtypes import I32
from tilesmith.ir.ops.control_flow import If, Yield
from tilesmith.ir.ops.memory import Atomic
from tilesmith.ir.tile_writer import TileWriter
from tilesmith.ir.types import Value, scalar
from tilesmith.passes.row_split import RowSplit


def if_last(
    form: RowSplit, write: TileWriter, counts: Value, row: Value, emit: Callable[[], None]
) -> None:
    """What the last of the programs does that come here with tiles of the same rows."""
    count = scalar(I32)
    update = {"kind": "add", "order": "acq_rel", "value": write.full(count, 1)}
    before = write.create(Atomic, count, tensor=counts, indices=(row,), **update)
    before.name = "before"
    end = write.full(count, form.site.num_columns - 1)
    others = write.apply("floordiv", end, write.size_of(count, form.column_block))
    is_last = write.apply("eq", before, others)
    write.open_region()
    emit()
    write.effect(Yield)
    then = write.close_region()
    write.open_region()
    write.effect(Yield)
    write.effect(If, condition=is_last, then=then, otherwise=write.close_region())
