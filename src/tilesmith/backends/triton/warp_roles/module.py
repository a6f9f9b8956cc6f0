"""The Gluon functions of a kernel with warp roles: one that loads, one that computes, the entry.

A function, its schedule and its plan go in. Text comes out, and what it refers to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

from tilesmith.backends.source_writer import SourceWriter
from tilesmith.backends.triton.emission.axes import start_name
from tilesmith.backends.triton.emission.emitter import Rules
from tilesmith.backends.triton.emission.spelling import Needs, triton_dtype
from tilesmith.backends.triton.ops.program_ids import emit_body
from tilesmith.backends.triton.ops.verbatim import HELPER_FUNCTIONS
from tilesmith.backends.triton.warp_roles.between import StepFunction, StepPart, bound_axes
from tilesmith.backends.triton.warp_roles.clearing import CLEARING_FUNCTIONS
from tilesmith.backends.triton.warp_roles.columns.stores import (
    PIECE_FUNCTIONS,
    WAIT,
    ResultStores,
)
from tilesmith.backends.triton.warp_roles.computing import ComputeRole
from tilesmith.backends.triton.warp_roles.copies import Buffers, CopiedTile, Shared
from tilesmith.backends.triton.warp_roles.edges.quotients import QUOTIENT_FUNCTIONS
from tilesmith.backends.triton.warp_roles.edges.walking import ROUND_FUNCTIONS, go_back
from tilesmith.backends.triton.warp_roles.emitter import (
    GROUP,
    ROWS,
    Part,
    Parts,
    RoleEmitter,
    in_gluon,
    num_groups,
)
from tilesmith.backends.triton.warp_roles.factors.growth import GROWTH_FUNCTIONS
from tilesmith.backends.triton.warp_roles.first_copies.copies import count_first, emit_first
from tilesmith.backends.triton.warp_roles.held_rows.rows import HeldRowsRole, holds_rows
from tilesmith.backends.triton.warp_roles.instructions import SHORT_FUNCTIONS
from tilesmith.backends.triton.warp_roles.layouts import (
    WARPS_PER_GROUP,
    Layout,
    ProductLayout,
    find_layouts,
)
from tilesmith.backends.triton.warp_roles.listed.turns import emit_turns
from tilesmith.backends.triton.warp_roles.loading import emit_copies, entering, is_scalar
from tilesmith.backends.triton.warp_roles.order import find_order
from tilesmith.backends.triton.warp_roles.plan import RolePlan
from tilesmith.backends.triton.warp_roles.protocol import BARRIER_FUNCTIONS, REGISTERS
from tilesmith.backends.triton.warp_roles.shortcuts.exponents import TANGENT_FUNCTIONS
from tilesmith.backends.triton.warp_roles.shortcuts.key_order import (
    FP8_FUNCTIONS,
    in_key_order,
    reorder_keys,
)
from tilesmith.backends.triton.warp_roles.shortcuts.scaled_pairs import PAIR_FUNCTIONS
from tilesmith.backends.triton.warp_roles.shortcuts.tangents import BEND_FUNCTIONS
from tilesmith.backends.triton.warp_roles.staggered import StaggeredRole, find_parts
from tilesmith.ir.function import Function
from tilesmith.ir.ops.memory import Store
from tilesmith.ir.types import Value
from tilesmith.schedule.schedule import Schedule

SHORTCUTS = {
    **{**FP8_FUNCTIONS, **PAIR_FUNCTIONS, **TANGENT_FUNCTIONS},
    **{**BEND_FUNCTIONS, **GROWTH_FUNCTIONS},
    **{**CLEARING_FUNCTIONS, **PIECE_FUNCTIONS, **QUOTIENT_FUNCTIONS, **ROUND_FUNCTIONS},
}
IMPORTS = """
import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor
"""


@dataclass
class RoleModule:
    """Device functions of one kernel under one schedule, and all that they refer to."""

    function: Function
    schedule: Schedule
    plan: RolePlan
    rules: Rules
    name: str
    triton_version: tuple[int, int]
    parts: Parts = field(default_factory=dict[str, tuple[Part, ...]])
    needs: Needs = field(default_factory=Needs)
    options: ClassVar[dict[str, Any]] = {}
    barriers, loaders = BARRIER_FUNCTIONS, 1

    def __post_init__(self) -> None:
        self.groups = num_groups(self.schedule)
        self.order = find_order(self.plan)
        self.buffers = Buffers(self.plan, self.schedule, self.groups)
        self._stores = ResultStores(self)

    @property
    def text(self) -> str:
        """Constants and functions; the last function is the one that is launched."""
        loader = self._emitter()
        loads = self._role(loader, lambda: self._emit_loads(loader))
        begins = emit_first(self._emitter(), self.shared, self._role)
        parts = [f"{self.barriers.strip()}\n"]
        worker = self._emitter()
        steps = self._make_steps()
        parts += [_device_function(step.name, step.parameters, step.emit()) for step in steps]
        computed = self._role(worker, self._compute_role(worker, steps).emit)
        for emitter in (loader, worker, *(step.emitter for step in steps)):
            self._take(emitter.spelling.needs)
        resources = [*self._constexprs, *self.needs.descriptions.values(), *self._resource_names]
        common = [*self._parameters, *resources]
        parts.append(_device_function(f"{self.name}_load", self._typed(common), loads))
        group = f"{GROUP}: gl.constexpr"
        parts.append(
            _device_function(f"{self.name}_compute", [group, *self._typed(common)], computed)
        )
        entry = [*self._parameters, *self.needs.descriptions.values(), *self._constexprs]
        parts.append(_device_function(self.name, self._typed(entry), self._entry(common, begins)))
        return in_gluon("\n\n".join([self._head(), *parts]), self.triton_version)

    def _emitter(self) -> RoleEmitter:
        rules: Rules = {**self.rules, Store: self._stores.emit}
        made = RoleEmitter(self.function, self.schedule, rules, self.plan.rows, self.layouts)
        made.long_last = self.plan.late_first
        made.scope.parts = self.parts
        # Two loops that are one.
        made.facts.axes = {**made.facts.axes, self.plan.loop: made.facts.axes[self.plan.tiles]}
        if self.plan.is_uneven and self.plan.branch is None:
            made.renumber = partial(go_back, made)
        if self.buffers.has_key_order:
            made.lane_orders[self.plan.loop.blocks[0]] = in_key_order
        return made

    @property
    def _parameters(self) -> list[str]:
        """Of the kernel: every function has them, under the same names."""
        return list(self._emitter().spelling.parameter_names.values())

    @property
    def _constexprs(self) -> list[str]:
        return list(self.needs.constexprs)

    def _typed(self, names: Sequence[str]) -> list[str]:
        return [f"{n}: gl.constexpr" if n in self.needs.constexprs else n for n in names]

    def _role(self, emitter: RoleEmitter, emit_tile: Callable[[], None]) -> str:
        """The body of a role: ids of programs and tiles, then what it does for each tile."""
        emitter.tile_body = emit_tile
        with emitter.writer.indented():
            emitter.writer.line("step = 0")
            if self.plan.kept:
                emitter.writer.line("piece = 0")
            emit_body(emitter)
            if self._stores.is_pending:
                emitter.writer.line(WAIT)
        return emitter.writer.text()

    def _emit_loads(self, emitter: RoleEmitter) -> None:
        loop = self.plan.loop
        start = start_name(loop.blocks[0], loop.body.args[0])
        emitter.bind(loop.body.args[0], start)
        with entering(emitter, self.plan, is_scalar):
            emit_turns(emitter, self.plan)
            with bound_axes(emitter, self.plan):
                self.buffers.find_tiles(emitter)
            self.buffers.tiles |= reorder_keys(self.plan, emitter, self.buffers.tiles)
            emit_copies(emitter, self.shared, count_first(emitter, self.plan))

    @property
    def layouts(self) -> dict[Value, Layout]:
        """Those of all tiles in registers; vectors that are copied have one of their own."""
        return find_layouts(self.plan, self.schedule.physical, self.buffers.vectors)

    @property
    def shared(self) -> Shared:
        """What all roles know."""
        buffers = self.buffers
        known = (buffers.rings, buffers.tiles, self.layouts, self.groups, buffers.has_key_order)
        return Shared(self.plan, *known)

    def _make_steps(self) -> list[StepFunction]:
        """The functions of what lies between products: none, one, or one for each part."""
        plan, name = self.plan, f"{self.name}_step"
        between = [op for op in plan.between if op not in self.buffers.tiles]
        is_listed = plan.listing is not None
        whole = StepPart(between, plan.late, plan.rescaling, is_listed, is_handed_on=True)
        parts = [whole] * bool(plan.early)
        if self.order is not None:
            parts = find_parts(plan, self.order, self.buffers.tiles)
        names = [name, f"{name}_2"]
        return [
            StepFunction(self._emitter(), self.shared, name, self._parameters, part)
            for name, part in zip(names, parts)
        ]

    def _compute_role(self, emitter: RoleEmitter, steps: Sequence[StepFunction]) -> ComputeRole:
        if self.order is not None:
            return StaggeredRole(emitter, self.shared, self.order, steps)
        role = HeldRowsRole if holds_rows(emitter, self.plan) else ComputeRole
        return role(emitter, self.shared, steps[0] if steps else None)

    def _take(self, needs: Needs) -> None:
        self.needs.constants |= needs.constants
        self.needs.constexprs |= needs.constexprs
        self.needs.helpers |= needs.helpers
        self.needs.descriptions |= needs.descriptions
        self.needs.has_libdevice |= needs.has_libdevice

    @property
    def _resource_names(self) -> list[str]:
        shared = self.shared
        buffers = [shared.buffer(load) for ring in shared.rings.values() for load in ring.loads]
        rings = [name for ring in shared.rings.values() for name in (ring.full, ring.empty)]
        return [*buffers, *self._stores.staged, *rings]

    def _entry(self, common: Sequence[str], begins: str) -> str:
        """Buffers and barriers, what begins before roles do, then all roles at once."""
        writer, roles, shared = SourceWriter(), SourceWriter(), self.shared
        with writer.indented(), roles.indented():
            for ring in shared.rings.values():
                for load in ring.loads:
                    count, tile = self.buffers.count(load, ring), self.buffers.tiles[load]
                    self._allocate(writer, shared.buffer(load), count, tile)
            for name, staged in self._stores.staged.items():
                self._allocate(writer, name, self.groups * staged.slots, staged.tile)
            for ring in shared.rings.values():
                writer.line(f"{ring.full} = _barriers({ring.length}, 1)")
                writer.line(f"{ring.empty} = _barriers({ring.length}, GROUPS)")
            self._write_roles(roles, common)
        return writer.text() + begins + roles.text()

    def _write_roles(self, writer: SourceWriter, common: Sequence[str]) -> None:
        """All groups and the warps that load, with their warps and registers."""
        compute, load = f"{self.name}_compute", f"{self.name}_load"
        roles = [(compute, [str(group), *common]) for group in range(self.groups)]
        writer.line("gl.warp_specialize(")
        with writer.indented():
            writer.line("[")
            with writer.indented():
                for name, arguments in [*roles, (load, [*common])]:
                    # Constants stay constants only in a tuple written where it is handed over.
                    writer.statement(f"({name}, ", arguments, tail="),")
            writer.line("],")
            writer.line(f"{[WARPS_PER_GROUP] * (self.groups - 1) + [self.loaders]},")
            writer.line(f"{REGISTERS[self.groups][1]},")
        writer.line(")")

    def _allocate(self, writer: SourceWriter, name: str, count: int, tile: CopiedTile) -> None:
        shape = str([count, *tile.block])
        arguments = [triton_dtype(tile.dtype), shape, tile.layout]
        writer.statement(f"{name} = gl.allocate_shared_memory", arguments)

    def _define(self, layout: ProductLayout) -> str:
        return layout.definition

    def _head(self) -> str:
        """Imports and constants of the module."""
        writer = SourceWriter()
        writer.line(IMPORTS.strip())
        if self.needs.has_libdevice:
            writer.line("from triton.language.extra import libdevice")
        writer.line("")
        rows = self.schedule.symbols[self.plan.rows] // self.groups
        constants = {**self.needs.constants, ROWS: rows, "GROUPS": self.groups}
        constants["STAGES"] = self.schedule.num_stages
        for name, value in constants.items():
            writer.line(f"{name} = gl.constexpr({value})")
        for layout in dict.fromkeys(self.layouts.values()):
            if isinstance(layout, ProductLayout):
                writer.line(f"{layout.name} = gl.constexpr({self._define(layout)})")
        for name in self.needs.helpers:
            known = {**HELPER_FUNCTIONS, **SHORT_FUNCTIONS, **SHORTCUTS}
            text = known[name].rstrip()
            writer.line(f"\n{text}".replace("@triton.jit", "@gluon.jit"))
        return writer.text()


def _device_function(name: str, parameters: Sequence[str], body: str) -> str:
    writer = SourceWriter()
    writer.line("@gluon.jit")
    writer.statement(f"def {name}", parameters, tail=":")
    return writer.text() + body
