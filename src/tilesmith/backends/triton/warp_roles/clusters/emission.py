"""Device functions whose warps have roles: of one program, or of two that share a tile."""

from __future__ import annotations

from typing import Any

from tilesmith.backends.triton.emission.emitter import Rules
from tilesmith.backends.triton.emission.spelling import Needs, device_name
from tilesmith.backends.triton.warp_roles.clusters import CLUSTERED
from tilesmith.backends.triton.warp_roles.clusters.module import ClusterModule
from tilesmith.backends.triton.warp_roles.columns.splitting import find_columns, split_columns
from tilesmith.backends.triton.warp_roles.module import RoleModule
from tilesmith.backends.triton.warp_roles.plan import RolePlan, plan_roles
from tilesmith.backends.triton.warp_roles.protocol import REGISTERS, WARPS_PER_GROUP
from tilesmith.backends.triton.warp_roles.refusals import Refusal
from tilesmith.backends.triton.warp_roles.rules import FORM
from tilesmith.exc import InternalError
from tilesmith.ir.function import Function
from tilesmith.schedule.schedule import Schedule

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
