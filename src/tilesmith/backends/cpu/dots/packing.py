"""Copies an operand into panels ``[k][width]`` of packed elements.

For either operand ``major`` is the axis that stays in the result (rows of the left one, columns
of the right one). Elements past the end are read nowhere and become zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilesmith.backends.cpu.dots.panels import (
    PANEL_PARAMETERS,
    Order,
    Packing,
    Panels,
    join_neighbours,
    lanes_below,
    load_along_depth,
    load_element,
    load_lanes,
    load_part,
)
from tilesmith.backends.cpu.dots.transposition import ROW_WRITERS, transpose
from tilesmith.backends.cpu.llvm.builder import Builder
from tilesmith.backends.cpu.llvm.instructions import Module
from tilesmith.backends.cpu.llvm.registers import INDEX, POINTER, LType, Register, index, number


def pack(b: Builder, packing: Packing, order: Order | None, panels: Panels) -> None:
    """Write all panels, one after the other; an unknown order is found out at run time."""
    if order is not None:
        b.call_void(_pack_function(b.module, packing, order), *panels.arguments())
        return

    def look_further() -> None:
        b.if_else(
            b.compare("eq", panels.major_stride, index(1)),
            lambda: pack(b, packing, Order.MAJOR, panels),
            lambda: pack(b, packing, Order.NEITHER, panels),
        )

    b.if_else(
        b.compare("eq", panels.depth_stride, index(1)),
        lambda: pack(b, packing, Order.DEPTH, panels),
        look_further,
    )


def _pack_function(module: Module, packing: Packing, order: Order) -> str:
    name = f"pack_{order.value}_{packing.stem}"
    if not module.has(name):
        b = Builder(module, name, PANEL_PARAMETERS)
        _emit_panels(b, packing, order)
        module.add(b)
    return name


def _emit_panels(b: Builder, packing: Packing, order: Order) -> None:
    at = Panels(*b.parameters)
    if order is Order.MAJOR and not packing.keeps_rows:
        _copy_panels(b, packing, at)
        return
    write = (ROW_WRITERS if packing.keeps_rows else _WRITERS)[order]
    b.count_up(at.count, lambda i: write(b, packing, _panel(b, packing, at, i)))


def _panel(b: Builder, packing: Packing, at: Panels, i: Register) -> Panels:
    """One of the panels, with all that is there from it on."""
    first = b.multiply(i, index(packing.used))
    position = b.multiply(i, packing.panel_size(b, at.depth))
    return replace(
        at,
        source=b.offset(at.source, b.multiply(first, at.major_stride), packing.loaded),
        target=b.offset(at.target, position, packing.element),
        majors=b.subtract(at.majors, first),
    )


def _copy_panels(b: Builder, packing: Packing, at: Panels) -> None:
    """The major axis is contiguous: rows of all full panels are copied, memory in its order."""
    spare = index(packing.width - packing.used)
    fitting = b.binary("sdiv", b.subtract(at.majors, spare), index(packing.used))
    full = b.minimum(at.count, fitting)
    whole = at.depth if packing.group == 1 else b.binary("sdiv", at.depth, index(packing.group))

    def row(step: Register) -> None:
        b.count_up(full, lambda i: _copy_row(b, packing, _panel(b, packing, at, i), step))

    def rest(i: Register) -> None:
        panel = _panel(b, packing, at, i)
        left = [b.subtract(panel.majors, index(n)) for n in range(0, packing.width, packing.lanes)]
        masks = [lanes_below(b, limit, packing.lanes) for limit in left]
        begin = b.select(b.compare("slt", i, full), whole, index(0))
        steps = packing.steps(b, at.depth)
        b.loop(begin, steps, index(1), lambda k, _: _copy_row(b, packing, panel, k, masks))

    b.count_up(whole, row)
    b.count_up(at.count, rest)


def _copy_row(
    b: Builder,
    packing: Packing,
    at: Panels,
    step: Register,
    masks: Sequence[Register] | None = None,
) -> None:
    """One row of a panel; with masks where it or some of its columns may not exist."""
    line = b.offset(at.target, b.multiply(step, index(packing.width)), packing.element)
    for i, first in enumerate(range(0, packing.width, packing.lanes)):
        mask = None if masks is None else masks[i]
        parts = _load_neighbours(b, packing, at, (step, first, mask))
        x = join_neighbours(b, packing, parts)
        b.store(x, b.offset(line, index(first), packing.element))


def _load_neighbours(
    b: Builder, packing: Packing, at: Panels, where: tuple[Register, int, Register | None]
) -> list[Register]:
    """The vectors from one column on in each row that a packed row holds."""
    step, first, mask = where
    kind = LType(packing.loaded, packing.lanes)
    parts: list[Register] = []
    for neighbour in range(packing.group):
        k = b.add(b.multiply(step, index(packing.group)), index(neighbour))
        position = b.add(b.multiply(k, at.depth_stride), index(first))
        exists = mask
        if mask is not None and packing.group > 1:
            is_there = b.splat(b.compare("slt", k, at.depth), packing.lanes)
            exists = b.binary("and", mask, is_there)
        parts.append(load_lanes(b, kind, b.offset(at.source, position, packing.loaded), exists))
    return parts


def _transpose_panel(b: Builder, packing: Packing, at: Panels) -> None:
    """The contracted axis is contiguous: square blocks of vectors are transposed."""

    def block(step: Register, _: tuple[Register, ...]) -> None:
        k = b.multiply(step, index(packing.group))
        for first in range(0, packing.width, packing.lanes):
            count = min(packing.lanes, packing.used - first)
            name = _square_function(b.module, packing, count)
            skipped = b.add(b.multiply(at.major_stride, index(first)), k)
            line = b.add(b.multiply(step, index(packing.width)), index(first))
            b.call_void(
                name,
                b.offset(at.source, skipped, packing.loaded),
                at.major_stride,
                b.offset(at.target, line, packing.element),
                b.subtract(at.majors, index(first)),
                b.subtract(at.depth, k),
            )

    b.loop(index(0), packing.steps(b, at.depth), index(packing.lanes), block)


def _square_function(module: Module, packing: Packing, count: int) -> str:
    """Transposes one square block of which at most ``count`` rows are there."""
    name = f"square_{count}_{packing.stem}"
    if not module.has(name):
        kinds = (POINTER, INDEX, POINTER, INDEX, INDEX)
        names = ("source", "stride", "target", "majors", "depth")
        b = Builder(module, name, [(n, LType(k)) for n, k in zip(names, kinds, strict=True)])
        _emit_square(b, packing, count)
        module.add(b)
    return name


def _emit_square(b: Builder, packing: Packing, count: int) -> None:
    source, stride, target, majors, depth = b.parameters
    width = packing.lanes * packing.group
    has_rows = b.compare("sge", majors, index(count))
    has_columns = b.compare("sge", depth, index(width))

    def copy() -> list[Register]:
        kind = LType(packing.loaded, width)
        return [load_part(b, kind, (source, stride), (count, majors, depth)), index(width)]

    first, step = b.if_else(b.binary("and", has_rows, has_columns), lambda: [source, stride], copy)
    starts = [b.offset(first, b.multiply(step, index(i)), packing.loaded) for i in range(count)]
    rows = [load_along_depth(b, packing, start) for start in starts]
    zero = number(packing.element, 0, packing.lanes)
    square = transpose(b, [*rows, *[zero] * (packing.lanes - count)])
    for k, row in enumerate(square):
        b.store(row, b.offset(target, index(k * packing.width), packing.element))


def _collect_panel(b: Builder, packing: Packing, at: Panels) -> None:
    """No axis is contiguous: one element after the other."""

    def row(step: Register) -> None:
        def one(i: Register) -> None:
            first = b.multiply(step, index(packing.group))
            ks = [b.add(first, index(neighbour)) for neighbour in range(packing.group)]
            x = join_neighbours(b, packing, [load_element(b, packing, at, k, i) for k in ks])
            place = b.add(b.multiply(step, index(packing.width)), i)
            b.store(x, b.offset(at.target, place, packing.element))

        b.count_up(index(packing.used), one)

    b.count_up(packing.steps(b, at.depth), row)


_WRITERS = {
    Order.DEPTH: _transpose_panel,
    Order.NEITHER: _collect_panel,
}
