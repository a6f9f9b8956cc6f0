"""Nests as loops with statements."""

from __future__ import annotations

from collections.abc import Iterator

from tilesmith.backends.cpu.loop_ir import nests as loop_ir
from tilesmith.backends.cpu.loop_ir.elements import (
    Access,
    Element,
    Read,
    TilePlace,
    Variable,
    walk_elements,
)
from tilesmith.backends.cpu.printing.elements import ElementText
from tilesmith.backends.cpu.printing.expressions import Expr, call, function, number
from tilesmith.backends.cpu.printing.listing import Listing
from tilesmith.diagnostics.location import SourceLocation
from tilesmith.ir.ops.reduction import ReduceKind

_UPDATES = {ReduceKind.SUM: "+=", ReduceKind.PROD: "*=", ReduceKind.ANY: "|=", ReduceKind.ALL: "&="}


def print_nest(listing: Listing, nest: loop_ir.Nest) -> None:
    """The loops of a nest and what they compute."""
    listing.lines.quote(_lines_behind(listing, nest))
    for write in nest.reductions:
        if isinstance(write.target, Variable):
            listing.define(write.target)
    with listing.names.scope():
        _NestText(listing, nest).write()


def _lines_behind(listing: Listing, nest: loop_ir.Nest) -> Iterator[SourceLocation]:
    kept = {w.value for w in nest.writes if isinstance(w, loop_ir.KeepElement) and w.is_own}
    for write in nest.writes:
        own = (
            {write.value}
            if isinstance(write, loop_ir.KeepElement) and write.is_own
            else set[Element]()
        )
        yield from listing.lines_behind(write.operands, kept - own)
        if not isinstance(write, loop_ir.KeepElement):
            yield write.loc


class _NestText:
    def __init__(self, listing: Listing, nest: loop_ir.Nest) -> None:
        self._listing = listing
        self._nest = nest
        self._order = nest.layout.order
        operands = [element for write in nest.writes for element in write.operands]
        self._text = ElementText(listing, self._order, operands)

    def write(self) -> None:
        for write in self._nest.writes:
            self._write(write)
        self._text.write([self._header(axis) for axis in self._order])

    def _header(self, axis: int) -> tuple[str, str]:
        layout = self._nest.layout
        length = self._listing.length(layout.space[axis])
        text = f"for {self._text.letters[axis]} in range({length})"
        if axis == layout.vector_axis:
            return text + self._lanes(length), self._fetching()
        is_plain = layout.vector_axis < 0 and axis == self._order[-1]
        return text, "one by one" if is_plain else ""

    def _fetching(self) -> str:
        operands = (element for write in self._nest.writes for element in write.operands)
        reads = [item for item in walk_elements(operands) if isinstance(item, Read) and item.ahead]
        names = sorted({item.access.tensor.label.hint for item in reads})
        return f"fetches {' and '.join(names)} for the next program" if names else ""

    def _lanes(self, length: Expr) -> str:
        width, unroll, size = self._nest.lanes, self._nest.unroll, length.constant
        parts = [f" by {width}"]
        if unroll > 1 and (size is None or size >= unroll * width):
            parts.append(f"{unroll} at a time")
        if size is None:
            parts.append("rest masked")
        elif size % width:
            parts.append(f"last {size % width} masked")
        return ", ".join(parts)

    def _write(self, write: loop_ir.Write) -> None:
        if isinstance(write, loop_ir.KeepElement):
            self._keep(write)
        elif isinstance(write, loop_ir.StoreElement):
            print_store(self._text, write)
        elif isinstance(write, loop_ir.UpdateElement):
            place = write.result
            kept = self._text.stored(place) if isinstance(place, TilePlace) else None
            print_update(self._text, write, kept)
        else:
            self._reduce(write)

    def _keep(self, write: loop_ir.KeepElement) -> None:
        target = self._text.stored(write.target)
        is_used = self._text.uses(write.value) > 1
        if not write.is_own:
            # What is stored needs no name if that is its only use.
            self._text.put(f"{target} = {self._text.get(write.value, is_named=is_used)}")
            return
        is_spilled = isinstance(write.target, Access)
        made = self._text.get(write.value, is_named=is_spilled and is_used)
        self._text.put(f"{target} = {made}", "kept where the result goes" if is_spilled else "")
        if not is_spilled:
            self._text.remember(write.value, target)

    def _reduce(self, write: loop_ir.ReduceElement) -> None:
        x, kind = self._text.get(write.value), write.kind
        if isinstance(write.target, Variable):
            target = self._listing.scalar(write.target)
        else:
            target = self._text.stored(write.target)
        if self._nest.layout.vector_axis < 0:
            self._text.put(f"{target} = {number(0) if kind.is_arg else x}")
            return
        first = 0 if kind.is_arg else kind.identity(write.dtype)
        self._text.put(f"{target} = {number(first)}", outside=1)
        is_flag = kind in (ReduceKind.ANY, ReduceKind.ALL)
        if is_flag and not write.value.dtype.is_bool:
            x = function("ne", [x, number(0)])
        if kind in _UPDATES:
            self._text.put(f"{target} {_UPDATES[kind]} {x}")
        else:
            self._text.put(f"{target} = {call(kind.value, target, x)}")


def print_store(text: ElementText, store: loop_ir.StoreElement) -> None:
    """An assignment, under the store's condition."""
    statement = f"{text.address(store.access)} = {text.get(store.value)}"
    condition = text.mask(store.access)
    text.put(statement if condition is None else f"if {condition}: {statement}")


def print_update(text: ElementText, update: loop_ir.UpdateElement, kept: Expr | None) -> None:
    """A call; ``kept`` is what takes the old value."""
    args = [str(text.address(update.access)), str(text.get(update.value))]
    if update.expected is not None:
        args.insert(1, str(text.get(update.expected)))
    if update.order != "relaxed":
        args.append(f"order={update.order!r}")
    made, condition = call(f"atomic_{update.kind}", *args), text.mask(update.access)
    if kept is None:
        text.put(str(made) if condition is None else f"if {condition}: {made}")
    elif condition is None:
        text.put(f"{kept} = {made}")
    else:
        text.put(f"{kept} = {made} if {condition} else 0")
