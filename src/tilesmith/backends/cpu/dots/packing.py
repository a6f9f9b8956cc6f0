"""Copies an operand into panels ``[k][width]`` of packed elements.

For either operand ``major`` is the axis that stays in the result (rows of the left one, columns
of the right one). Elements past the end are read nowhere and become zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilesmith.backends.cpu.dots import panels as packed_form
from tilesmith.backends.cpu.dots.transposition import ROW_WRITERS, transpose
from tilesmith.backends.cpu.llvm.builder import Builder
from tilesmith.backends.cpu.llvm.instructions import Module
from tilesmith.backends.cpu.llvm.registers import INDEX, POINTER, LType, Register, index, number


def pack(
    builder: Builder,
    packing: packed_form.Packing,
    order: packed_form.Order | None,
    panels: packed_form.Panels,
) -> None:
    """Write all panels, one after the other; an unknown order is found out at run time."""
    if order is not None:
        builder.call_void(_pack_function(builder.module, packing, order), *panels.arguments())
        return

    def look_further() -> None:
        builder.if_else(
            builder.compare("eq", panels.major_stride, index(1)),
            lambda: pack(builder, packing, packed_form.Order.MAJOR, panels),
            lambda: pack(builder, packing, packed_form.Order.NEITHER, panels),
        )

    builder.if_else(
        builder.compare("eq", panels.depth_stride, index(1)),
        lambda: pack(builder, packing, packed_form.Order.DEPTH, panels),
        look_further,
    )


def _pack_function(module: Module, packing: packed_form.Packing, order: packed_form.Order) -> str:
    name = f"pack_{order.value}_{packing.stem}"
    if not module.has(name):
        builder = Builder(module, name, packed_form.PANEL_PARAMETERS)
        _emit_panels(builder, packing, order)
        module.add(builder)
    return name


def _emit_panels(builder: Builder, packing: packed_form.Packing, order: packed_form.Order) -> None:
    at = packed_form.Panels(*builder.parameters)
    if order is packed_form.Order.MAJOR and not packing.keeps_rows:
        _copy_panels(builder, packing, at)
        return
    write = (ROW_WRITERS if packing.keeps_rows else _WRITERS)[order]
    builder.count_up(at.count, lambda i: write(builder, packing, _panel(builder, packing, at, i)))


def _panel(
    builder: Builder, packing: packed_form.Packing, at: packed_form.Panels, i: Register
) -> packed_form.Panels:
    """One of the panels, with all that is there from it on."""
    first = builder.multiply(i, index(packing.used))
    position = builder.multiply(i, packing.panel_size(builder, at.depth))
    return replace(
        at,
        source=builder.offset(at.source, builder.multiply(first, at.major_stride), packing.loaded),
        target=builder.offset(at.target, position, packing.element),
        majors=builder.subtract(at.majors, first),
    )


def _copy_panels(builder: Builder, packing: packed_form.Packing, at: packed_form.Panels) -> None:
    """The major axis is contiguous: rows of all full panels are copied, memory in its order."""
    spare = index(packing.width - packing.used)
    fitting = builder.binary("sdiv", builder.subtract(at.majors, spare), index(packing.used))
    full = builder.minimum(at.count, fitting)
    whole = (
        at.depth if packing.group == 1 else builder.binary("sdiv", at.depth, index(packing.group))
    )

    def row(step: Register) -> None:
        builder.count_up(
            full, lambda i: _copy_row(builder, packing, _panel(builder, packing, at, i), step)
        )

    def rest(i: Register) -> None:
        panel = _panel(builder, packing, at, i)
        left = [
            builder.subtract(panel.majors, index(n)) for n in range(0, packing.width, packing.lanes)
        ]
        masks = [packed_form.lanes_below(builder, limit, packing.lanes) for limit in left]
        begin = builder.select(builder.compare("slt", i, full), whole, index(0))
        steps = packing.steps(builder, at.depth)
        builder.loop(
            begin, steps, index(1), lambda k, _: _copy_row(builder, packing, panel, k, masks)
        )

    builder.count_up(whole, row)
    builder.count_up(at.count, rest)


def _copy_row(
    builder: Builder,
    packing: packed_form.Packing,
    at: packed_form.Panels,
    step: Register,
    masks: Sequence[Register] | None = None,
) -> None:
    """One row of a panel; with masks where it or some of its columns may not exist."""
    line = builder.offset(at.target, builder.multiply(step, index(packing.width)), packing.element)
    for i, first in enumerate(range(0, packing.width, packing.lanes)):
        mask = None if masks is None else masks[i]
        parts = _load_neighbours(builder, packing, at, (step, first, mask))
        x = packed_form.join_neighbours(builder, packing, parts)
        builder.store(x, builder.offset(line, index(first), packing.element))


def _load_neighbours(
    builder: Builder,
    packing: packed_form.Packing,
    at: packed_form.Panels,
    where: tuple[Register, int, Register | None],
) -> list[Register]:
    """The vectors from one column on in each row that a packed row holds."""
    step, first, mask = where
    kind = LType(packing.loaded, packing.lanes)
    parts: list[Register] = []
    for neighbour in range(packing.group):
        k = builder.add(builder.multiply(step, index(packing.group)), index(neighbour))
        position = builder.add(builder.multiply(k, at.depth_stride), index(first))
        exists = mask
        if mask is not None and packing.group > 1:
            is_there = builder.splat(builder.compare("slt", k, at.depth), packing.lanes)
            exists = builder.binary("and", mask, is_there)
        parts.append(
            packed_form.load_lanes(
                builder, kind, builder.offset(at.source, position, packing.loaded), exists
            )
        )
    return parts


def _transpose_panel(
    builder: Builder, packing: packed_form.Packing, at: packed_form.Panels
) -> None:
    """The contracted axis is contiguous: square blocks of vectors are transposed."""

    def block(step: Register, _: tuple[Register, ...]) -> None:
        k = builder.multiply(step, index(packing.group))
        for first in range(0, packing.width, packing.lanes):
            count = min(packing.lanes, packing.used - first)
            name = _square_function(builder.module, packing, count)
            skipped = builder.add(builder.multiply(at.major_stride, index(first)), k)
            line = builder.add(builder.multiply(step, index(packing.width)), index(first))
            builder.call_void(
                name,
                builder.offset(at.source, skipped, packing.loaded),
                at.major_stride,
                builder.offset(at.target, line, packing.element),
                builder.subtract(at.majors, index(first)),
                builder.subtract(at.depth, k),
            )

    builder.loop(index(0), packing.steps(builder, at.depth), index(packing.lanes), block)


def _square_function(module: Module, packing: packed_form.Packing, count: int) -> str:
    """Transposes one square block of which at most ``count`` rows are there."""
    name = f"square_{count}_{packing.stem}"
    if not module.has(name):
        kinds = (POINTER, INDEX, POINTER, INDEX, INDEX)
        names = ("source", "stride", "target", "majors", "depth")
        builder = Builder(module, name, [(n, LType(k)) for n, k in zip(names, kinds, strict=True)])
        _emit_square(builder, packing, count)
        module.add(builder)
    return name


def _emit_square(builder: Builder, packing: packed_form.Packing, count: int) -> None:
    source, stride, target, majors, depth = builder.parameters
    width = packing.lanes * packing.group
    has_rows = builder.compare("sge", majors, index(count))
    has_columns = builder.compare("sge", depth, index(width))

    def copy() -> list[Register]:
        kind = LType(packing.loaded, width)
        return [
            packed_form.load_part(builder, kind, (source, stride), (count, majors, depth)),
            index(width),
        ]

    first, step = builder.if_else(
        builder.binary("and", has_rows, has_columns), lambda: [source, stride], copy
    )
    starts = [
        builder.offset(first, builder.multiply(step, index(i)), packing.loaded)
        for i in range(count)
    ]
    rows = [packed_form.load_along_depth(builder, packing, start) for start in starts]
    zero = number(packing.element, 0, packing.lanes)
    square = transpose(builder, [*rows, *[zero] * (packing.lanes - count)])
    for k, row in enumerate(square):
        builder.store(row, builder.offset(target, index(k * packing.width), packing.element))


def _collect_panel(builder: Builder, packing: packed_form.Packing, at: packed_form.Panels) -> None:
    """No axis is contiguous: one element after the other."""

    def row(step: Register) -> None:
        def one(i: Register) -> None:
            first = builder.multiply(step, index(packing.group))
            ks = [builder.add(first, index(neighbour)) for neighbour in range(packing.group)]
            x = packed_form.join_neighbours(
                builder, packing, [packed_form.load_element(builder, packing, at, k, i) for k in ks]
            )
            place = builder.add(builder.multiply(step, index(packing.width)), i)
            builder.store(x, builder.offset(at.target, place, packing.element))

        builder.count_up(index(packing.used), one)

    builder.count_up(packing.steps(builder, at.depth), row)


_WRITERS = {
    packed_form.Order.DEPTH: _transpose_panel,
    packed_form.Order.NEITHER: _collect_panel,
}
