"""A kernel of the loop IR as readable text: loops, what they compute, and the user's lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from math import prod
from typing import Any

from tilesmith.backends.cpu.dots.shapes import padded_shape
from tilesmith.backends.cpu.loop_ir import statements, whole_tiles
from tilesmith.backends.cpu.loop_ir.elements import BlockLength, Number, Tensor, Tile, Variable
from tilesmith.backends.cpu.positions.memory import count_lanes, find_lane_axes
from tilesmith.backends.cpu.printing import nests
from tilesmith.backends.cpu.printing.elements import ElementText
from tilesmith.backends.cpu.printing.listing import (
    Expr,
    Listing,
    at_once,
    call,
    multiply,
    number,
    product,
    subtract,
)
from tilesmith.diagnostics.location import SourceLocation

_MAX_INLINE = 56


def _print_block(listing: Listing, block: statements.Block) -> None:
    for statement in block:
        STATEMENT_TEXTS[type(statement)](listing, statement)


def _quote(listing: Listing, variables: Sequence[Variable], loc: SourceLocation) -> None:
    """The lines behind some scalars that a statement reads, then its own."""
    behind = [line for variable in variables for line in listing.sources(variable)]
    listing.lines.quote([*behind, loc])


def _print_assign(listing: Listing, item: statements.Assign) -> None:
    """A line, or part of a later one."""
    text = ElementText(listing, (), item.value.operands)
    made = text.compute(item.value)
    behind = [*listing.behind(item.value.operands), item.loc]
    if isinstance(item.value, (Number, BlockLength)) or _is_part_of_reader(item, made):
        listing.inline(item.variable, made, behind)
        return
    listing.lines.quote(behind)
    text.write(())
    listing.lines.put(f"{listing.names.of(item.variable)} = {made}")
    listing.define(item.variable)


def _is_part_of_reader(item: statements.Assign, made: Expr) -> bool:
    """Whether a scalar needs no line of its own: it has one use, in the same block."""
    if item.readers is statements.Readers.SEVERAL:
        return False
    if made.text.isidentifier() or item.readers is statements.Readers.END_OF_BLOCK:
        return True
    if item.variable.label.hint or len(made.text) > _MAX_INLINE:
        return False
    return item.readers is statements.Readers.SCALAR


def _print_access(
    listing: Listing, item: statements.StoreElement | statements.UpdateElement
) -> None:
    listing.lines.quote([*listing.behind(item.operands), item.loc])
    if isinstance(item, statements.UpdateElement) and isinstance(item.result, Variable):
        listing.define(item.result)
    text = ElementText(listing, (), ())
    nests.print_access(text, item)
    text.write(())


def enter_axes(listing: Listing, axes: Sequence[statements.LoopAxis]) -> list[tuple[str, str]]:
    """Name the indices of loops: for each axis its header and the length of its tiles."""
    found: list[tuple[str, str]] = []
    for axis in axes:
        begin, end = listing.scalar(axis.begin), listing.scalar(axis.end)
        name = listing.names.fresh((axis.index.label.hint or "i").removesuffix("_begin"))
        listing.names.share(axis.index, name)
        listing.inline(axis.index, Expr(name))
        if axis.block:
            step = listing.block_size(axis.block)
        else:
            step = number(1) if axis.step is None else listing.scalar(axis.step)
        bounds = [begin, end, step] if step.constant != 1 else [begin, end]
        found.append((f"{name} in {call('range', *bounds)}", _tile_length(listing, axis, name)))
    return found


def _tile_length(listing: Listing, axis: statements.LoopAxis, name: str) -> str:
    """A statement with the length of a tile where that varies."""
    if not axis.block:
        return ""
    size = listing.block_size(axis.block)
    if not axis.is_partial or size.constant == 1:
        listing.lengths[axis.block] = size
        return ""
    length = listing.names.fresh(f"{name}_size")
    listing.lengths[axis.block] = Expr(length)
    return f"{length} = {call('min', size, subtract(listing.scalar(axis.end), Expr(name)))}"


def _print_for(listing: Listing, loop: statements.For) -> None:
    names = _start(listing, loop.carried)
    reads = [variable for axis in loop.axes for variable in (axis.begin, axis.end, axis.step)]
    reads += [carried.start for carried in loop.carried]
    known = [variable for variable in reads if variable is not None]
    _quote(listing, known, loop.loc)
    with listing.loop(), ExitStack() as blocks:
        for header, statement in enter_axes(listing, loop.axes):
            blocks.enter_context(listing.lines.block(f"for {header}"))
            if statement:
                listing.lines.put(statement)
        _print_block(listing, loop.body)
        _assign_all(listing, names, [carried.following for carried in loop.carried])


def _print_while(listing: Listing, loop: statements.While) -> None:
    names = _start(listing, loop.carried)
    for carried, name in zip(loop.carried, names):
        assert carried.tested is not None
        listing.define(carried.tested, name)
    listing.lines.quote([loop.loc])
    with listing.names.scope(), listing.lines.block("while True"):
        _print_block(listing, loop.condition)
        condition = listing.scalar(loop.is_open)
        if not listing.lines.reword("while True", f"while {condition}"):
            listing.lines.put(f"if not ({condition}): break")
        _print_block(listing, loop.body)
        _assign_all(listing, names, [carried.following for carried in loop.carried])


def _print_if(listing: Listing, branch: statements.If) -> None:
    _quote(listing, [branch.condition], branch.loc)
    names = [listing.names.of(variable) for variable in branch.results]
    with listing.lines.block(f"if {listing.scalar(branch.condition)}"):
        _print_arm(listing, branch.then, names, branch.yielded[0])
    if branch.otherwise or names:
        with listing.lines.block("else"):
            _print_arm(listing, branch.otherwise, names, branch.yielded[1])
    for variable, name in zip(branch.results, names):
        listing.define(variable, name)


def _print_arm(
    listing: Listing, block: statements.Block, names: list[str], yielded: Sequence[Variable]
) -> None:
    with listing.names.scope():
        _print_block(listing, block)
        _assign_all(listing, names, yielded)


def _start(listing: Listing, carried: Sequence[statements.Carried]) -> list[str]:
    """Variables for carried scalars, with what they begin as."""
    found: list[str] = []
    for item in carried:
        first = listing.scalar(item.start)
        is_last_use = item.is_last_use and item.start in listing.defined
        name = first.text if is_last_use else listing.names.of(item.inside)
        if not is_last_use:
            listing.lines.quote(listing.sources(item.start), is_new=True)
            listing.lines.put(f"{name} = {first}")
        listing.define(item.inside, name)
        listing.define(item.result, name)
        found.append(name)
    return found


def _assign_all(listing: Listing, names: Sequence[str], values: Sequence[Variable]) -> None:
    """Give variables their next values, all of them made from the old ones."""
    pairs = zip(names, values)
    rows = [(name, listing.scalar(x).text, listing.sources(x)) for name, x in pairs]
    for name, new, lines in at_once([row for row in rows if row[0] != row[1]]):
        listing.lines.quote(lines)
        listing.lines.put(f"{name} = {new}")


STATEMENT_TEXTS: dict[type[Any], Callable[[Listing, Any], None]] = {
    statements.Assign: _print_assign,
    whole_tiles.Combine: nests.print_combination,
    statements.For: _print_for,
    statements.If: _print_if,
    statements.Nest: nests.print_nest,
    whole_tiles.Print: nests.print_print,
    whole_tiles.Product: nests.print_product,
    whole_tiles.Scan: nests.print_scan,
    whole_tiles.SortLines: nests.print_sort,
    statements.StoreElement: _print_access,
    statements.UpdateElement: _print_access,
    statements.While: _print_while,
}


def print_kernel(kernel: statements.Kernel) -> str:
    """Header, scalars of the whole kernel, then one grid after the other."""
    listing = Listing(kernel)
    _print_header(listing)
    for part in kernel.body:
        if isinstance(part, statements.Grid):
            listing.lines.put("")
            _print_grid(listing, part)
        else:
            _print_block(listing, (part,))
    return listing.lines.text()


def _print_header(listing: Listing) -> None:
    kernel = listing.kernel
    target, options = kernel.target, kernel.options
    sizes = [f"{name}={size}" for name, size in kernel.block_sizes.items()]
    sizes = [f"block sizes: {', '.join(sizes)}"] if sizes else []
    listing.lines.remarks([f"{kernel.name} on {target}, {target.vector_lanes} lanes", *sizes])
    parts = [f"threads: {options.threads or 'as many as torch uses'}"]
    if options.streaming_stores:
        parts.append("whole vectors are stored past the caches")
    listing.lines.remarks(parts)
    listing.lines.remarks([_parameter(listing, parameter) for parameter in kernel.parameters])


def _parameter(listing: Listing, parameter: Tensor | Variable) -> str:
    name = listing.names.of(parameter)
    if isinstance(parameter, Variable):
        return f"{name}: {parameter.dtype}"
    tensor = parameter.type
    text = f"{name}: {tensor.dtype}[{', '.join(map(str, tensor.shape))}]"
    sizes = [size for size in tensor.shape[1:] if isinstance(size, int)]
    is_known = len(sizes) == max(0, tensor.rank - 1)
    if is_known and tensor.strides == tuple(prod(sizes[n:]) for n in range(tensor.rank)):
        return text  # contiguous
    return f"{text}, strides [{', '.join(map(str, tensor.strides))}]"


def _print_grid(listing: Listing, grid: statements.Grid) -> None:
    listing.lines.quote([grid.loc])
    listing.lines.remarks([_packed(listing, source) for source in grid.packed])
    with listing.loop(), ExitStack() as block:
        axes = enter_axes(listing, grid.axes)
        header = ", ".join(header for header, _ in axes)
        programs = _programs(listing, grid)
        block.enter_context(listing.lines.block(f"parallel for {header}", programs))
        innermost = find_lane_axes(grid.body)
        for tile in grid.tiles:
            _print_scratch(listing, tile, innermost.get(tile))
        for _, statement in axes:
            if statement:
                listing.lines.put(statement)
        _print_block(listing, grid.body)


def _packed(listing: Listing, source: whole_tiles.PackedTensor) -> str:
    size = source.size
    rest = " if enough share it" if size is None else f": {size:,} bytes"
    return f"{listing.names.of(source.tensor)} is packed once for all programs{rest}"


def _programs(listing: Listing, grid: statements.Grid) -> str:
    """How many programs there are and how they are shared out."""
    how = "dynamic" if listing.kernel.options.is_dynamic else "static"
    counts = [_count(listing, axis) for axis in grid.axes]
    known = [count for count in counts if count is not None]
    plural = "" if prod(known) == 1 else "s"
    total = f"{prod(known):,} program{plural}, " if len(known) == len(counts) else ""
    if not grid.has_chosen_order or len(grid.axes) < 2:
        return f"{total}{how}"
    fastest = listing.names.of(grid.axes[grid.order[0]].index)
    return f"{total}{how}, {fastest} fastest"


def _count(listing: Listing, axis: statements.LoopAxis) -> int | None:
    begin, end = (listing.scalar(bound).constant for bound in (axis.begin, axis.end))
    size = listing.kernel.block_sizes.get(axis.block) if axis.block else 1
    if begin is None or end is None or size is None:
        return None
    return max(0, -(-int(end - begin) // size))


def _print_scratch(listing: Listing, tile: Tile, innermost: int | None) -> None:
    """A declaration: shape, element type and size."""
    shape = [listing.full_length(dim) for dim in tile.shape]
    text = f"{listing.names.of(tile)} = scratch({tile.dtype}, [{', '.join(map(str, shape))}])"
    padded = _padded(listing, tile, shape, innermost)
    size = multiply(product(padded), number(tile.held_as.itemsize))
    parts = [f"{size if size.constant is None else format(size.constant, ',')} bytes"]
    if tile.held_as != tile.dtype:
        parts.append(f"held as {tile.held_as}")
    if innermost is not None and any(not dim.is_one for dim in tile.shape[innermost + 1 :]):
        parts.append(f"axis {innermost} innermost")
    if padded != shape:
        parts.append(f"padded to {' x '.join(map(str, padded))}")
    listing.lines.put(text, ", ".join(parts))


def _padded(listing: Listing, tile: Tile, shape: list[Expr], innermost: int | None) -> list[Expr]:
    """Products write whole register blocks, past the end of a row; others whole vectors."""
    row = None if innermost is None else shape[innermost].constant
    if innermost is not None and row is not None and not tile.is_padded:
        lanes = count_lanes(int(row), listing.kernel.target.vector_lanes)
        whole = number(-(-int(row) // lanes) * lanes)
        return [*shape[:innermost], whole, *shape[innermost + 1 :]]
    rows, columns = ([None, None, *(x.constant for x in shape)])[-2:]
    if not tile.is_padded or not (rows and columns):
        return shape
    lanes = listing.kernel.target.vector_lanes
    sizes = padded_shape(lanes, tile.held_as, int(rows), int(columns))
    return [*shape[:-2], *map(number, sizes)]
