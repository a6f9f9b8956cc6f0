"""The Gluon functions of a product that pairs of programs compute."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from typing_extensions import override

from tilesmith.backends.source_writer import SourceWriter
from tilesmith.backends.triton.emission.emitter import Rules
from tilesmith.backends.triton.emission.spelling import Needs, device_name
from tilesmith.backends.triton.ops.program_ids import CLUSTERED
from tilesmith.backends.triton.role_clusters.protocol import (
    CLUSTER_FUNCTIONS,
    MEET,
    PEER_BYTES,
    PROGRAMS,
    ClusterRing,
)
from tilesmith.backends.triton.warp_roles.columns.splitting import find_columns, split_columns
from tilesmith.backends.triton.warp_roles.copies import Buffers
from tilesmith.backends.triton.warp_roles.emitter import RoleEmitter
from tilesmith.backends.triton.warp_roles.layouts import WARPS_PER_GROUP, ProductLayout
from tilesmith.backends.triton.warp_roles.module import RoleModule
from tilesmith.backends.triton.warp_roles.plan import RolePlan, plan_roles
from tilesmith.backends.triton.warp_roles.protocol import (
    BARRIER_BYTES,
    REGISTERS,
    Ring,
)
from tilesmith.backends.triton.warp_roles.refusals import Refusal
from tilesmith.backends.triton.warp_roles.rules import FORM
from tilesmith.exc import InternalError
from tilesmith.ir.function import Function
from tilesmith.schedule.schedule import Schedule

LOADERS = 4
"""Warps that load. Both programs meet when all their warps do, and Triton has four in any case;
one that starts all copies took 189 us for 4096^3 on an H200, four together 177."""


class ClusterBuffers(Buffers):
    """Tiles of one program of a pair, in rings that both release."""

    barrier_bytes = BARRIER_BYTES + PEER_BYTES

    @property
    @override
    def rings(self) -> dict[str, Ring]:
        return {kind: ClusterRing(**vars(ring)) for kind, ring in super().rings.items()}


class ClusterModule(RoleModule):
    """Each program of a pair runs all roles, with half of the rows."""

    options: ClassVar[dict[str, Any]] = {"num_ctas": PROGRAMS}
    barriers, loaders = CLUSTER_FUNCTIONS, LOADERS

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        self.buffers = ClusterBuffers(self.plan, self.schedule, self.groups)

    @override
    def _emitter(self) -> RoleEmitter:
        made = super()._emitter()
        made.programs = PROGRAMS
        return made

    @override
    def _role(self, emitter: RoleEmitter, emit_tile: Callable[[], None]) -> str:
        """Barriers of both are there before one is used, and memory of both until nobody does."""
        with emitter.writer.indented():
            emitter.writer.line(MEET)
        super()._role(emitter, emit_tile)
        with emitter.writer.indented():
            emitter.writer.line(MEET)
        return emitter.writer.text()

    @property
    def _cluster_rings(self) -> Mapping[str, ClusterRing]:
        rings = self.shared.rings.values()
        return {ring.released: ring for ring in rings if isinstance(ring, ClusterRing)}

    @property
    @override
    def _resource_names(self) -> list[str]:
        return [*super()._resource_names, *self._cluster_rings]

    @override
    def _write_roles(self, writer: SourceWriter, common: Sequence[str]) -> None:
        for name, ring in self._cluster_rings.items():
            writer.line(f"{name} = _peer_barriers({ring.length}, GROUPS)")
        super()._write_roles(writer, common)

    @override
    def _define(self, layout: ProductLayout) -> str:
        return f"{layout.definition[:-1]}, cga_layout=[[1, 0]])"


MODULES = {FORM: RoleModule, CLUSTERED: ClusterModule}
"""By the form of the schedule."""


def emit_roles(
    function: Function, schedule: Schedule, rules: Rules, triton_version: tuple[int, int]
) -> tuple[str, Needs, dict[str, Any]]:
    """The device functions in Gluon, what they refer to, and how they are launched."""
    plan = plan_roles(function)
    if isinstance(plan, Refusal):
        raise InternalError(loc=plan.loc, problem=f"no warp roles: {plan.reason}")
    kind = MODULES[schedule.form]
    function, schedule, parts = split_columns(function, schedule, find_columns(plan))
    plan = plan_roles(function)
    assert isinstance(plan, RolePlan)
    name = device_name(function)
    module = kind(function, schedule, plan, rules, name, triton_version, parts)
    text, needs = module.text, module.needs
    needs.parameters |= {parameter.value for parameter in function.parameters}
    registers = REGISTERS[module.groups][0]
    return text, needs, {"num_warps": WARPS_PER_GROUP, "maxnreg": registers, **kind.options}
