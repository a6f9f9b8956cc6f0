"""Statements that go through whole tiles by themselves: products, scans, combinations, prints."""

from __future__ import annotations

from tilesmith.backends.cpu.loop_ir import elements as ir
from tilesmith.backends.cpu.loop_ir import whole_tiles as loop_ir
from tilesmith.backends.cpu.printing.elements import ElementText, resolve
from tilesmith.backends.cpu.printing.expressions import Expr, element, function, number
from tilesmith.backends.cpu.printing.listing import Listing
from tilesmith.ir.ops.reduction import ReduceKind
from tilesmith.ir.types import Shape

_MAX_INLINE = 40
_COMBINATIONS = {
    ReduceKind.SUM: "add",
    ReduceKind.PROD: "mul",
    ReduceKind.MAX: "maximum",
    ReduceKind.MIN: "minimum",
}


def print_product(listing: Listing, product: loop_ir.Product) -> None:
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


def _where(listing: Listing, product: loop_ir.Product) -> str:
    left, right = (_name(listing, matrix) for matrix in (product.lhs, product.rhs))
    left_place, right_place = (
        "in scratch" if isinstance(matrix, loop_ir.StoredMatrix) else "in place"
        for matrix in (product.lhs, product.rhs)
    )
    if product.packed is not None:
        right_place = "packed"
    if left_place != right_place:
        return f"{left} {left_place}, {right} {right_place}"
    return f"{left if left == right else f'{left} and {right}'} {left_place}"


def _name(listing: Listing, matrix: loop_ir.Matrix) -> str:
    if isinstance(matrix, loop_ir.StoredMatrix):
        return listing.names.of(matrix.tile)
    return listing.names.of(matrix.access.tensor)


def _operand(listing: Listing, matrix: loop_ir.Matrix) -> Expr:
    """One factor: a tile in memory of its own, or part of a tensor."""
    name = _name(listing, matrix)
    if isinstance(matrix, loop_ir.StoredMatrix):
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


def print_scan(listing: Listing, scan: loop_ir.Scan) -> None:
    """A loop along the scanned axis, inside of loops over the others."""
    listing.lines.quote([*listing.lines_behind([scan.value]), scan.loc])
    order = _loop_order(scan)
    with listing.names.scope():
        text = ElementText(listing, order, [scan.value])
        x = text.get(scan.value)
        if scan.along is not None:
            before = _one_before(text, scan, scan.target)
            x = function(_COMBINATIONS[scan.kind], [before, x])
        first = "last" if scan.is_reversed else "first"
        text.put(f"{text.stored(scan.target)} = {x}", f"the {first} one stays as it is")
        text.write([_header(text, scan, axis) for axis in order])


def _loop_order(item: loop_ir.Scan | loop_ir.Combine) -> list[int]:
    others = [axis for axis in range(len(item.space)) if axis != item.along]
    return others if item.along is None else [*others, item.along]


def _one_before(
    text: ElementText, item: loop_ir.Scan | loop_ir.Combine, place: ir.TilePlace
) -> Expr:
    before = [text.position(position) for position in place.positions]
    function_name = "add" if item.is_reversed else "sub"
    before[item.axis] = function(function_name, [before[item.axis], number(1)])
    return element(text.listing.names.of(place.tile), *before)


def _header(text: ElementText, item: loop_ir.Scan | loop_ir.Combine, axis: int) -> tuple[str, str]:
    positions = f"range({text.listing.length(item.space[axis])})"
    is_along = axis == item.along
    if is_along and item.is_reversed:
        positions = f"reversed({positions})"
    return f"for {text.letters[axis]} in {positions}", "one by one" if is_along else ""


def print_combination(listing: Listing, combine: loop_ir.Combine) -> None:
    """A loop along the axis, inside of loops over the others: elements meet what came before."""
    behind = listing.lines_behind(combine.values)
    listing.lines.quote([*behind, *combine.inner_locs, combine.loc])
    for result in combine.results:
        if isinstance(result, ir.Variable):
            listing.define(result)
    order = _loop_order(combine)
    with listing.names.scope():
        text = ElementText(listing, order, combine.values)
        made = [text.get(value) for value in combine.values]
        rows = list(zip(_targets(text, combine), made))
        if combine.along is not None:
            rows = _steps(text, combine, rows)
        first = "last" if combine.is_reversed else "first"
        remark = "" if combine.along is None else f"the {first} one stays as it is"
        for line in _assignments(rows):
            text.put(line, remark)
        text.write([_header(text, combine, axis) for axis in order])


def _targets(text: ElementText, combine: loop_ir.Combine) -> list[Expr]:
    return [
        text.stored(result)
        if isinstance(result, ir.TilePlace)
        else Expr(text.listing.names.of(result))
        for result in combine.results
    ]


def _steps(
    text: ElementText, combine: loop_ir.Combine, rows: list[tuple[Expr, Expr]]
) -> list[tuple[Expr, Expr]]:
    """Targets and what they become, from what they were and the present elements."""
    before, made = _before(text, combine), [made for _, made in rows]
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


def _before(text: ElementText, combine: loop_ir.Combine) -> list[Expr]:
    targets = _targets(text, combine)
    if not combine.is_scan:
        return targets
    return [
        _one_before(text, combine, result) if isinstance(result, ir.TilePlace) else target
        for target, result in zip(targets, combine.results)
    ]


def _combined(text: ElementText, combine: loop_ir.Combine) -> list[Expr]:
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


def _assignments(rows: list[tuple[Expr, Expr]]) -> list[str]:
    """One line for each target, or one for all where a later one looks at an earlier one."""
    later = [" ".join(str(new) for _, new in rows[n + 1 :]) for n in range(len(rows))]
    if not any(str(target) in rest for (target, _), rest in zip(rows, later)):
        return [f"{target} = {new}" for target, new in rows]
    targets, values = (", ".join(map(str, part)) for part in zip(*rows))
    return [f"{targets} = {values}"]


def print_print(listing: Listing, item: loop_ir.Print) -> None:
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
            lengths = map(listing.length, space)
            text.write(
                [(f"for {text.letters[n]} in range({x})", "") for n, x in enumerate(lengths)]
            )


def print_sort(listing: Listing, sort: loop_ir.SortLines) -> None:
    """``sort(tile, axis)``."""
    listing.lines.quote([sort.loc])
    text = f"sort({listing.names.of(sort.tile)}, {sort.axis})"
    listing.lines.put(text, "ascending, where it lies")
