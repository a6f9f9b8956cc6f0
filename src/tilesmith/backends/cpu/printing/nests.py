"""Nests as loops with statements, and statements that go through whole tiles by themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tilesmith.backends.cpu.loop_ir import elements as ir
from tilesmith.backends.cpu.loop_ir import statements as loop_ir
from tilesmith.backends.cpu.loop_ir import whole_tiles
from tilesmith.backends.cpu.printing.elements import ElementText, resolve
from tilesmith.backends.cpu.printing.listing import (
    Expr,
    Listing,
    at_once,
    call,
    element,
    function,
    number,
)
from tilesmith.diagnostics.location import SourceLocation
from tilesmith.ir.ops.reduction import ReduceKind
from tilesmith.ir.types import Shape

_UPDATES = {ReduceKind.SUM: "+=", ReduceKind.PROD: "*=", ReduceKind.ANY: "|=", ReduceKind.ALL: "&="}
_MAX_INLINE = 40
_Along = whole_tiles.Scan | whole_tiles.Combine
_Rows = list[tuple[Expr, Expr]]
"""Targets and what they become."""


def print_nest(listing: Listing, nest: loop_ir.Nest) -> None:
    """The loops of a nest and what they compute."""
    listing.lines.quote(_lines_behind(listing, nest))
    for write in nest.writes:
        if isinstance(write, loop_ir.ReduceElement) and isinstance(write.target, ir.Variable):
            listing.define(write.target)
    with listing.names.scope():
        _NestText(listing, nest).write()


def _lines_behind(listing: Listing, nest: loop_ir.Nest) -> Iterator[SourceLocation]:
    kept = nest.kept
    for write in nest.writes:
        is_kept = isinstance(write, loop_ir.KeepElement) and write.is_own
        yield from listing.lines_behind(write.operands, kept - {write.value} if is_kept else kept)
        if not isinstance(write, loop_ir.KeepElement):
            yield write.loc


class _NestText:
    def __init__(self, listing: Listing, nest: loop_ir.Nest) -> None:
        self._listing = listing
        self._nest = nest
        self._order = nest.layout.order
        self._text = ElementText(listing, self._order, nest.operands)

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
        elements = ir.walk_elements(self._nest.operands)
        reads = [item for item in elements if isinstance(item, ir.Read) and item.ahead]
        names = sorted({item.access.tensor.label.hint for item in reads})
        return f"fetches {' and '.join(names)} ahead" if names else ""

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
        elif isinstance(write, loop_ir.ReduceElement):
            self._reduce(write)
        else:
            print_access(self._text, write)

    def _keep(self, write: loop_ir.KeepElement) -> None:
        target = self._text.target(write.target)
        is_used = self._text.uses(write.value) > 1
        if not write.is_own:
            # What is stored needs no name if that is its only use.
            self._text.put(f"{target} = {self._text.get(write.value, is_named=is_used)}")
            return
        is_spilled = isinstance(write.target, ir.Access)
        made = self._text.get(write.value, is_named=is_spilled and is_used)
        self._text.put(f"{target} = {made}", "kept where the result goes" if is_spilled else "")
        if not is_spilled:
            self._text.remember(write.value, target)

    def _reduce(self, write: loop_ir.ReduceElement) -> None:
        x, kind = self._text.get(write.value), write.kind
        target = self._text.target(write.target)
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


def print_access(text: ElementText, item: loop_ir.StoreElement | loop_ir.UpdateElement) -> None:
    """An assignment or an atomic, under the condition of the access."""
    if isinstance(item, loop_ir.UpdateElement):
        _print_update(text, item)
        return
    statement = f"{text.address(item.access)} = {text.get(item.value)}"
    condition = text.mask(item.access)
    text.put(statement if condition is None else f"if {condition}: {statement}")


def _print_update(text: ElementText, update: loop_ir.UpdateElement) -> None:
    args = [str(text.address(update.access)), str(text.get(update.value))]
    if update.expected is not None:
        args.insert(1, str(text.get(update.expected)))
    if update.order != "relaxed":
        args.append(f"order={update.order!r}")
    made, condition = call(f"atomic_{update.kind}", *args), text.mask(update.access)
    if update.result is None:
        text.put(str(made) if condition is None else f"if {condition}: {made}")
    else:
        rest = "" if condition is None else f" if {condition} else 0"
        text.put(f"{text.target(update.result)} = {made}{rest}")


def print_product(listing: Listing, product: whole_tiles.Product) -> None:
    """``acc[:, :] += x[tile_m:, tile_k:] @ y[tile_k:, tile_n:]``."""
    parts = (product.addend, product.lhs.element, product.rhs.element)
    elements = [part for part in parts if part is not None]
    listing.lines.quote([*listing.lines_behind(elements), product.loc])
    left, right = (_operand(listing, matrix) for matrix in (product.lhs, product.rhs))
    target = element(listing.names.of(product.target), *":" * len(product.target.shape))
    sign = "+=" if product.accumulates else "="
    start = "; begins at zero" if product.starts_at else ""
    remark = f"{_size(listing, product.shape)}; {_where(listing, product)}{start}"
    listing.lines.put(f"{target} {sign} {left} @ {right}", remark)


def _size(listing: Listing, shape: Shape) -> str:
    most = [listing.full_length(dim) for dim in shape]
    prefix = "" if most == [listing.length(dim) for dim in shape] else "up to "
    return prefix + " x ".join(map(str, most))


def _where(listing: Listing, product: whole_tiles.Product) -> str:
    left, right = (_name(listing, matrix) for matrix in (product.lhs, product.rhs))
    left_place, right_place = (
        "in scratch" if isinstance(matrix, whole_tiles.StoredMatrix) else "in place"
        for matrix in (product.lhs, product.rhs)
    )
    if product.packed is not None:
        right_place = "packed"
    if left_place != right_place:
        return f"{left} {left_place}, {right} {right_place}"
    return f"{left if left == right else f'{left} and {right}'} {left_place}"


def _name(listing: Listing, matrix: whole_tiles.Matrix) -> str:
    if isinstance(matrix, whole_tiles.StoredMatrix):
        return listing.names.of(matrix.tile)
    return listing.names.of(matrix.access.tensor)


def _operand(listing: Listing, matrix: whole_tiles.Matrix) -> Expr:
    """One factor: a tile in memory of its own, or part of a tensor."""
    name = _name(listing, matrix)
    if isinstance(matrix, whole_tiles.StoredMatrix):
        return element(name, *":" * len(matrix.tile.shape))
    with listing.names.scope():
        text = ElementText(listing, range(len(matrix.steps)), ())
        found = element(name, *(_index(text, index) for index in matrix.access.indices))
    return Expr(f"{found}.T") if matrix.is_transposed else found


def _index(text: ElementText, index: ir.Element) -> str:
    origin = resolve(index)
    if index.axes and isinstance(origin, ir.PositionOf):
        return f"{text.get(origin.x)}:" if origin.operands else ":"
    return str(text.get(index, is_named=False))


def print_scan(listing: Listing, scan: whole_tiles.Scan) -> None:
    """A loop along the scanned axis, inside of loops over the others."""
    listing.lines.quote([*listing.lines_behind([scan.value]), scan.loc])
    with _loops(listing, scan, [scan.value]) as text:
        x = text.get(scan.value)
        if scan.along is not None:
            before = _one_before(text, scan, scan.target)
            x = function(scan.kind.scalar_function, [before, x])
        first = "last" if scan.is_reversed else "first"
        text.put(f"{text.target(scan.target)} = {x}", f"the {first} one stays as it is")


@contextmanager
def _loops(listing: Listing, item: _Along, values: Sequence[ir.Element]) -> Iterator[ElementText]:
    """The loops over all axes, that of the item innermost."""
    order = [axis for axis in range(len(item.space)) if axis != item.along]
    order += [] if item.along is None else [item.along]
    with listing.names.scope():
        text = ElementText(listing, order, values)
        yield text
        text.write([_loop_header(text, item, axis) for axis in order])


def _one_before(text: ElementText, item: _Along, place: ir.TilePlace) -> Expr:
    before = [text.position(position) for position in place.positions]
    function_name = "add" if item.is_reversed else "sub"
    before[item.axis] = function(function_name, [before[item.axis], number(1)])
    return element(text.listing.names.of(place.tile), *before)


def _loop_header(text: ElementText, item: _Along, axis: int) -> tuple[str, str]:
    positions = f"range({text.listing.length(item.space[axis])})"
    is_along = axis == item.along
    if is_along and item.is_reversed:
        positions = f"reversed({positions})"
    return f"for {text.letters[axis]} in {positions}", "one by one" if is_along else ""


def print_combination(listing: Listing, combine: whole_tiles.Combine) -> None:
    """A loop along the axis, inside of loops over the others: elements meet what came before."""
    behind = listing.lines_behind(combine.values)
    listing.lines.quote([*behind, *combine.inner_locs, combine.loc])
    for result in combine.results:
        if isinstance(result, ir.Variable):
            listing.define(result)
    with _loops(listing, combine, combine.values) as text:
        made = [text.get(value) for value in combine.values]
        rows = list(zip(map(text.target, combine.results), made))
        if combine.along is not None:
            rows = _steps(text, combine, rows)
        first = "last" if combine.is_reversed else "first"
        remark = "" if combine.along is None else f"the {first} one stays as it is"
        for target, new, _ in at_once([(str(place), str(x), ()) for place, x in rows]):
            text.put(f"{target} = {new}", remark)


def _steps(text: ElementText, combine: whole_tiles.Combine, rows: _Rows) -> list[tuple[Expr, Expr]]:
    """Targets and what they become, from what they were and the present elements."""
    before, made = [target for target, _ in rows], [made for _, made in rows]
    for n, result in enumerate(combine.results):
        if combine.is_scan and isinstance(result, ir.TilePlace):
            before[n] = _one_before(text, combine, result)
    moving: list[int] = []
    for n, value in enumerate(combine.values):
        is_number = not value.axes and not isinstance(combine.results[n], ir.TilePlace)
        if is_number and combine.yielded[n] is combine.args[n]:
            before[n] = made[n]
        else:
            moving.append(n)
    for arg, expr in zip(combine.args, (*before, *made)):
        text.listing.inline(arg, expr)
    new = _combined(text, combine)
    return [(rows[n][0], new[n]) for n in moving]


def _combined(text: ElementText, combine: whole_tiles.Combine) -> list[Expr]:
    uses = [
        operand.variable
        for _, step in combine.steps
        for operand in step.operands
        if isinstance(operand, ir.ReadVariable)
    ] + list(combine.yielded)
    for variable, value in combine.steps:
        made = text.compute(value)
        is_long = len(made.text) > _MAX_INLINE and variable not in combine.yielded
        if not isinstance(value, ir.Number) and (is_long or uses.count(variable) > 1):
            name = text.listing.names.fresh(variable.label.stem)
            text.put(f"{name} = {made}")
            made = Expr(name)
        text.listing.inline(variable, made)
    return [text.listing.scalar(value) for value in combine.yielded]


def print_print(listing: Listing, item: whole_tiles.Print) -> None:
    """A loop nest for each value."""
    elements = [value for value, _ in item.values]
    listing.lines.quote([*listing.lines_behind(elements), item.loc])
    if not item.values:
        listing.lines.put(f'print("{item.prefix}")')
    for value, shape in item.values:
        space = [dim for dim in shape if not dim.is_one]
        with listing.names.scope():
            text = ElementText(listing, range(len(space)), [value])
            text.put(f'print("{item.prefix}", {text.get(value)})')
            lengths = enumerate(map(listing.length, space))
            text.write([(f"for {text.letters[n]} in range({x})", "") for n, x in lengths])


def print_sort(listing: Listing, sort: whole_tiles.SortLines) -> None:
    """``sort(tile, axis)``."""
    listing.lines.quote([sort.loc])
    text = f"sort({listing.names.of(sort.tile)}, {sort.axis})"
    part = f"the first {sort.count} " if sort.count else ""
    listing.lines.put(text, f"{part}ascending, where it lies")
