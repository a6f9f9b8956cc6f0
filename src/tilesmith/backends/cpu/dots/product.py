"""Emits a matrix product of tiles: blocks along m and k, packed panels, micro-kernels.

Packed memory has a static size however large the operands are: part of m and k of the left
operand is packed at a time, and a few panels of the right one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from tilesmith.backends.cpu.dots import micro_kernel
from tilesmith.backends.cpu.dots.joined_steps import sum_shifts
from tilesmith.backends.cpu.dots.micro_kernel import MicroKernel
from tilesmith.backends.cpu.dots.packing import pack
from tilesmith.backends.cpu.dots.plans import DotPlan, Panels, plan_dot
from tilesmith.backends.cpu.dots.shapes import DotProblem, View
from tilesmith.backends.cpu.llvm.builder import Builder
from tilesmith.backends.cpu.llvm.registers import Register, index, number, parameters


class _Call(NamedTuple):
    """Parameters of a product function, or of one block of it."""

    lhs: Register
    lhs_row: Register
    lhs_column: Register
    rhs: Register
    rhs_row: Register
    rhs_column: Register
    out: Register
    out_row: Register
    rows: Register
    columns: Register
    depth: Register
    accumulate: Register
    scratch: Register


class _Run(NamedTuple):
    """Left panels at an equal distance that one micro-kernel takes."""

    kernel: MicroKernel
    lhs: Register
    panel: Register
    panels: Register
    row: Register


def emit_dot(builder: Builder, lhs: View, rhs: View, out: View, problem: DotProblem) -> None:
    """``out[:m, :n] (+)= lhs[:m, :k] @ rhs[:k, :n]``.

    ``out`` is in register form with unit column stride and room for ``padded_shape``.
    """
    plan = plan_dot(lhs, rhs, problem)
    if not builder.module.has(plan.name):
        accepted = parameters(_Call._fields, ("lhs", "rhs", "out", "scratch"), ("accumulate",))
        inside = Builder(builder.module, plan.name, accepted)
        _Product(inside, plan).emit(_Call(*inside.parameters))
        builder.module.add(inside)
    operands = lhs.pointer, *lhs.strides, rhs.pointer, *rhs.strides, out.pointer, out.strides[0]
    flag = problem.accumulate
    if not isinstance(flag, Register):
        flag = number("i1", flag)
    count = plan.block.rows if plan.reads_lhs else plan.rows
    elements = _rhs_elements(plan) + plan.lhs.count_elements(plan.depth, count)
    scratch = problem.scratch(elements * problem.dtype.itemsize)
    builder.call_void(plan.name, *operands, *problem.extents, flag, scratch)


def _rhs_elements(plan: DotPlan) -> int:
    return plan.rhs.count_elements(plan.depth, plan.block.columns * plan.rhs_panels)


@dataclass(frozen=True)
class _Product:
    """Emits the function of a plan."""

    builder: Builder
    plan: DotPlan

    def emit(self, call: _Call) -> None:
        builder, plan = self.builder, self.plan
        blocks = builder.ceiling_quotient(call.depth, index(plan.depth))

        def rows(first: Register, _: tuple[Register, ...]) -> None:
            # With an empty contraction one block of depth 0 writes the zeros.
            count = builder.intrinsic("smax", blocks, index(1))
            builder.count_up(count, lambda i: self._emit_block(self._part(call, first, i)))

        if plan.uses_tiles:
            micro_kernel.configure_tile_registers(builder)
        builder.loop(index(0), call.rows, index(plan.rows), rows)
        if plan.uses_tiles:
            # They slow down switches between threads.
            builder.call_void("llvm.x86.tilerelease")

    def _part(self, call: _Call, row: Register, i: Register) -> _Call:
        """The call restricted to some rows and some of k."""
        builder, plan = self.builder, self.plan
        k = builder.multiply(i, index(plan.depth))
        down, right = builder.multiply(row, call.lhs_row), builder.multiply(k, call.lhs_column)
        return call._replace(
            lhs=builder.offset(call.lhs, builder.add(down, right), plan.lhs.loaded),
            rhs=builder.offset(call.rhs, builder.multiply(k, call.rhs_row), plan.rhs.loaded),
            out=builder.offset(call.out, builder.multiply(row, call.out_row), plan.element),
            rows=builder.minimum(builder.subtract(call.rows, row), index(plan.rows)),
            depth=builder.minimum(builder.subtract(call.depth, k), index(plan.depth)),
            accumulate=builder.binary("or", call.accumulate, builder.compare("sgt", i, index(0))),
        )

    def _emit_block(self, call: _Call) -> None:
        builder, plan = self.builder, self.plan
        packed = builder.offset(call.scratch, index(_rhs_elements(plan)), plan.element)
        if plan.reads_lhs:
            runs = self._read_lhs(call, packed)
        else:
            runs = [self._pack_lhs(call, packed, index(0))]
        if not plan.reads_rhs:
            self._emit_packed_columns(call, runs)
            return
        width, whole = index(plan.block.columns), call.columns
        is_packed = plan.rhs_panels == 0
        if not is_packed:
            whole = builder.multiply(builder.binary("sdiv", call.columns, width), width)

        def panel(first: Register, _: tuple[Register, ...]) -> None:
            part = self._columns_from(call, first)
            self._multiply(part, runs, part.rhs, width if is_packed else part.rhs_row)

        builder.loop(index(0), whole, width, panel)
        if plan.partial[1] and not is_packed:
            self._emit_packed_columns(self._columns_from(call, whole), runs)

    def _columns_from(self, call: _Call, first: Register) -> _Call:
        builder, plan = self.builder, self.plan
        moved = builder.multiply(first, call.rhs_column)
        return call._replace(
            rhs=builder.offset(call.rhs, moved, plan.rhs.loaded),
            out=builder.offset(call.out, first, plan.element),
            columns=builder.subtract(call.columns, first),
        )

    def _pack_lhs(self, call: _Call, target: Register, row: Register) -> _Run:
        builder, plan = self.builder, self.plan
        start = builder.offset(call.lhs, builder.multiply(row, call.lhs_row), plan.lhs.loaded)
        left = builder.subtract(call.rows, row)
        count = builder.ceiling_quotient(left, index(plan.block.rows))
        panels = Panels(start, call.lhs_row, call.lhs_column, target, left, call.depth, count)
        pack(builder, plan.lhs, plan.orders[0], panels)
        if plan.lhs.has_sums:
            size = plan.lhs.panel_size(builder, call.depth)
            builder.count_up(count, lambda i: self._sum_rows(call, target, size, i))
        form = plan.uses_tiles, plan.joined_steps
        kernel = MicroKernel(plan.element, plan.block, True, plan.lhs.element, *form)
        return _Run(kernel, target, plan.lhs.panel_size(builder, call.depth), count, row)

    def _sum_rows(self, call: _Call, target: Register, size: Register, i: Register) -> None:
        """Behind a left panel, one row: what right bytes greater by 128 will add too much."""
        builder, packing = self.builder, self.plan.lhs
        panel = builder.offset(target, builder.multiply(i, size), packing.element)
        last = builder.offset(panel, builder.subtract(size, index(packing.width)), packing.element)
        steps = packing.steps(builder, call.depth)
        builder.store(sum_shifts(builder, panel, steps, packing.width), last)

    def _read_lhs(self, call: _Call, target: Register) -> list[_Run]:
        """Full panels where they are; only the last rows, if they fill no panel, are packed."""
        builder, plan, height = self.builder, self.plan, index(self.plan.block.rows)
        count = builder.binary("sdiv", call.rows, height)
        kernel = MicroKernel(plan.element, plan.block, False, plan.lhs.loaded, plan.uses_tiles)
        whole = _Run(kernel, call.lhs, builder.multiply(call.lhs_row, height), count, index(0))
        if not plan.partial[0]:
            return [whole]
        return [whole, self._pack_lhs(call, target, builder.multiply(count, height))]

    def _emit_packed_columns(self, call: _Call, runs: list[_Run]) -> None:
        """Pack some panels of the right operand and multiply each with all of the left ones."""
        builder, plan, width = self.builder, self.plan, index(self.plan.block.columns)

        def panels(first: Register, _: tuple[Register, ...]) -> None:
            part = self._columns_from(call, first)
            left = builder.ceiling_quotient(part.columns, width)
            count = builder.minimum(left, index(plan.rhs_panels))
            source = part.rhs, call.rhs_column, call.rhs_row
            target = Panels(*source, call.scratch, part.columns, call.depth, count)
            pack(builder, plan.rhs, plan.orders[1], target)
            size = plan.rhs.panel_size(builder, call.depth)

            def panel(i: Register) -> None:
                at = self._columns_from(part, builder.multiply(i, width))
                place = builder.offset(call.scratch, builder.multiply(i, size), plan.rhs.element)
                self._multiply(at, runs, place, width)

            builder.count_up(count, panel)

        builder.loop(index(0), call.columns, index(plan.block.columns * plan.rhs_panels), panels)

    def _multiply(self, call: _Call, runs: list[_Run], rhs: Register, step: Register) -> None:
        """All left panels with one right panel, at an address and with a step along k."""
        builder, plan = self.builder, self.plan
        steps = plan.rhs.steps(builder, call.depth)
        for run in runs:
            kernel, ahead = self._look_ahead(call, run)
            out = builder.offset(call.out, builder.multiply(run.row, call.out_row), plan.element)
            place = run.lhs, call.lhs_row, run.panel, rhs, step, out, call.out_row
            column = micro_kernel.BlockColumn(*place, run.panels, steps, call.accumulate, *ahead)
            micro_kernel.multiply_column(builder, kernel, column)

    def _look_ahead(self, call: _Call, run: _Run) -> tuple[MicroKernel, tuple[Register, Register]]:
        """The micro-kernel and what it fetches: a panel packed before comes from far away."""
        builder, plan = self.builder, self.plan
        if plan.rhs_panels:
            return run.kernel, (call.rhs, index(0))
        width = plan.block.columns
        skipped = builder.multiply(index(width), call.rhs_column)
        following = builder.offset(call.rhs, skipped, plan.element)
        row_bytes = index(width * plan.rhs.dtype.itemsize)
        step = builder.ceiling_quotient(row_bytes, builder.intrinsic("smax", run.panels, index(1)))
        return replace(run.kernel, fetches_ahead=True), (following, step)
