"""A function and its schedule to a Triton module with its launch contract.

The launch grid and ``launch`` are Python over the names of parameters: device values that the grid
needs are computed again on the host.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

from tilesmith.artifacts import Artifact, LaunchParameter
from tilesmith.backends.interface import Backend, TuningNeeds, launch_parameter
from tilesmith.backends.source_writer import SourceWriter
from tilesmith.backends.triton.emission import spelling
from tilesmith.backends.triton.emission.emitter import Emitter, Rules
from tilesmith.backends.triton.emission.rounded_quotients import rounds_visibly
from tilesmith.backends.triton.emission.runtime_tiles import bytes_of_threads
from tilesmith.backends.triton.multiply_adds.module import emit_multiply_adds
from tilesmith.backends.triton.multiply_adds.offer import MULTIPLY_ADDS
from tilesmith.backends.triton.ops import (
    control_flow,
    elementwise,
    memory,
    program_ids,
    reduction,
    shape,
    verbatim,
)
from tilesmith.backends.triton.ops.verbatim import HELPER_FUNCTIONS, uses_libdevice
from tilesmith.backends.triton.optimizations import early_starts
from tilesmith.backends.triton.optimizations.counted_loops import count_turns
from tilesmith.backends.triton.optimizations.early_loads import begin_loads_early
from tilesmith.backends.triton.optimizations.gaussian_tails import use_tails
from tilesmith.backends.triton.optimizations.kept_lanes import keep_lanes
from tilesmith.backends.triton.optimizations.online_maxima import join_walks
from tilesmith.backends.triton.optimizations.short_powers import shorten_powers
from tilesmith.backends.triton.optimizations.turned_products import turn_products
from tilesmith.backends.triton.role_clusters.module import MODULES, emit_roles
from tilesmith.backends.triton.role_clusters.versions import installed_version
from tilesmith.backends.triton.schedule_rules import TritonRules
from tilesmith.backends.triton.warp_roles.segments import take_factors_out_of_maxima
from tilesmith.backends.triton.workarounds.lane_order import order_lanes
from tilesmith.backends.triton.workarounds.subnormals import subnormal_options
from tilesmith.diagnostics.catalogue import InternalError
from tilesmith.dtypes import DTYPES_BY_NAME, F64, I64
from tilesmith.ir.function import Function
from tilesmith.ir.operation import Operation
from tilesmith.ir.ops.control_flow import LEAST_SMS_FOR_GROUPS, Grid
from tilesmith.ir.ops.elementwise import Cast, Elementwise
from tilesmith.ir.ops.indexing import BlockSize, Full
from tilesmith.ir.ops.matmul import Dot
from tilesmith.ir.traversal import definitions, walk_function
from tilesmith.ir.types import Dim, TileType, Value
from tilesmith.schedule.config import is_persistent
from tilesmith.schedule.schedule import Schedule

NAME = "triton"
# From here on Triton warns unless told, since its default is about to change.
_FUSION_ASKED_FROM = (3, 9)
_REGISTERS, _MOST_REGISTERS = 65_536, 255
"""Of a multiprocessor, and of a thread at most."""
_CROWDED_BYTES = 512
"""Of one tile, for each thread."""
_HIP_OPTIONS = ("waves_per_eu", "matrix_instr_nonkdim")

ROLES = {**dict.fromkeys(MODULES, emit_roles), MULTIPLY_ADDS: emit_multiply_adds}
"""What emits forms with warp roles."""
RULES: Rules = {
    **elementwise.RULES,
    **control_flow.RULES,
    **memory.RULES,
    **reduction.RULES,
    **shape.RULES,
    **program_ids.RULES,
    **verbatim.RULES,
}
"""The rule of every op, by its class. Checked against the catalog: none can be forgotten here."""


def emit(
    function: Function, schedule: Schedule, triton_version: tuple[int, int] | None = None
) -> Artifact:
    """The module that runs ``function`` as ``schedule`` says.

    ``triton_version`` decides which access forms exist; by default it is that of the installed one.
    """
    version = triton_version or installed_version()
    if schedule.form in ROLES:
        text, needs, options = ROLES[schedule.form](function, schedule, RULES, version)
        options |= _fusion(function, schedule, version)
        artifact = _artifact(spelling.Spelling(function, schedule), needs, options)
        text = f"{_decorate(text, artifact, schedule)}\n\n{_launch_text(artifact)}"
        return replace(artifact, source=text)
    emitter = Emitter(function, schedule, RULES)
    emitter.triton_version = version
    with emitter.writer.indented():
        if early_starts.begins_early(function, schedule.target):
            emitter.writer.line(early_starts.WAIT)
        program_ids.emit_body(emitter)
    artifact = _artifact(emitter.spelling, emitter.spelling.needs, _options(emitter))
    text = _decorate(_source(artifact, emitter), artifact, schedule)
    return replace(artifact, source=text, bytes_of_threads=bytes_of_threads(emitter))


def _artifact(names: spelling.Spelling, needs: spelling.Needs, options: dict[str, Any]) -> Artifact:
    """The launch contract of a function whose body is emitted; no source yet."""
    function, schedule, parameter_names = names.function, names.schedule, names.parameter_names
    host = _HostExpressions(parameter_names, definitions(function.body), schedule.symbols)
    grid = _launch_grid(function, schedule, host)
    used = needs.parameters | host.used
    if function.before is not None:
        used |= {parameter.value for parameter in function.before.parameters}
    parameters = [p for p in function.parameters if p.value in used]
    return Artifact(
        name=spelling.device_name(function),
        source="",
        parameters=tuple(launch_parameter(p, parameter_names[p.value]) for p in parameters),
        constexprs=tuple(needs.constexprs.items()),
        grid=grid,
        options=options,
        target=schedule.target,
        backend=NAME,
        descriptions=tuple(replace(item, name=name) for item, name in needs.descriptions.items()),
        least_sms=LEAST_SMS_FOR_GROUPS if program_ids.find_tickets(function) is not None else 0,
    )


def _prepare(function: Function, schedule: Schedule) -> Function:
    """Walks, powers, counters, turned products, lanes, loads; for warps with roles, maxima."""
    function = use_tails(function)
    if schedule.form in ROLES:
        return take_factors_out_of_maxima(function)
    function = count_turns(shorten_powers(join_walks(function, schedule), schedule), schedule)
    function = keep_lanes(turn_products(function, schedule), schedule)
    return program_ids.add_counter(order_lanes(begin_loads_early(function, schedule), schedule))


def _options(emitter: Emitter) -> dict[str, Any]:
    schedule = emitter.schedule
    loops = (*schedule.loops.values(), schedule.persistent_loop)
    # Specialised warps come in groups of four.
    least_warps = 4 if any(loop.warp_specialize for loop in loops) else 1
    options: dict[str, Any] = {
        "num_warps": max(schedule.num_warps, least_warps),
        "num_stages": schedule.num_stages,
    }
    options |= _fusion(emitter.function, schedule, emitter.triton_version)
    options |= subnormal_options(emitter.function, schedule)
    limit = schedule.maxnreg or _register_limit(emitter)
    if limit is not None and schedule.target.kind == "cuda":
        options["maxnreg"] = limit
    if schedule.target.kind == "hip":
        chosen = {name: schedule.backend_options.get(name, 0) for name in _HIP_OPTIONS}
        options.update({name: value for name, value in chosen.items() if value})
    if program_ids.has_barriers(emitter.function):
        options[program_ids.COOPERATIVE] = True
    is_early = early_starts.begins_early(emitter.function, schedule.target)
    return options | ({early_starts.OPTION: True} if is_early else {})


def _fusion(
    function: Function, schedule: Schedule, triton_version: tuple[int, int]
) -> dict[str, bool]:
    """Whether products may be added without being rounded first."""
    may_fuse = bool(schedule.backend_options.get("fast_math")) or not rounds_visibly(function)
    is_told = not may_fuse or triton_version >= _FUSION_ASKED_FROM
    return {"enable_fp_fusion": may_fuse} if is_told else {}


def _register_limit(emitter: Emitter) -> int | None:
    """All registers that a thread may have, where one tile takes half of them; None elsewhere.

    Without a limit the assembler may choose 32 for more programs at a time, whatever that spills.
    ptxas 12.8 then spilled 21 kB per thread of a kernel with such tiles, and computed an address
    of shared memory from a register that held something else by then. It obeys a limit instead.
    Tiles of matrix products are that large as a rule, and do not lead there.
    """
    schedule = emitter.schedule
    ops = list(walk_function(emitter.function))
    dots = [op for op in ops if isinstance(op, Dot)]
    usual = {value.tile.shape for op in dots for value in (op.lhs, op.rhs, op.result)}
    threads = schedule.num_warps * schedule.target.warp_size
    tiles = [value.tile for op in ops for value in op.results if value.tile.shape not in usual]
    most = max((_known_bytes(tile, schedule) for tile in tiles), default=0)
    is_crowded = most >= _CROWDED_BYTES * threads
    return min(_MOST_REGISTERS, _REGISTERS // threads) if is_crowded else None


def _known_bytes(tile: TileType, schedule: Schedule) -> int:
    """Of a tile, as far as its sizes are known before the launch."""
    factors = [factor for dim in tile.shape for factor in dim.factors]
    known = [Dim.of(f) for f in factors if not isinstance(f, str) or f in schedule.symbols]
    return prod(map(schedule.physical, known)) * tile.dtype.itemsize


def _source(artifact: Artifact, emitter: Emitter) -> str:
    """The text of the module, from its imports to ``launch``."""
    needs, writer = emitter.spelling.needs, SourceWriter()
    writer.line("import torch")
    writer.line("import triton")
    writer.line("import triton.language as tl")
    if needs.has_libdevice or any(map(uses_libdevice, needs.helpers)):
        writer.line("from triton.language.extra import libdevice")
    if artifact.descriptions:
        writer.line("from triton.tools.tensor_descriptor import TensorDescriptor")
    if needs.constants:
        writer.line("")
    for name, value in needs.constants.items():
        writer.line(f"{name} = tl.constexpr({value})")
    for name in needs.helpers:
        writer.line(f"\n{HELPER_FUNCTIONS[name].rstrip()}")
    for text in needs.definitions:
        writer.line(f"\n\n{text.strip()}")
    writer.line("\n\n@triton.jit")
    device_parameters = [
        *map(_device_parameter, artifact.parameters),
        *(description.name for description in artifact.descriptions),
        *(f"{name}: tl.constexpr" for name in needs.constexprs),
    ]
    writer.statement(f"def {artifact.name}", device_parameters, tail=":")
    body = early_starts.let_next_begin(emitter.writer.text(), emitter.function, artifact.target)
    return f"{writer.text()}{body}\n\n{_launch_text(artifact)}"


def _decorate(text: str, artifact: Artifact, schedule: Schedule) -> str:
    """Name the integers that code must not depend on, where a setting asks for it."""
    numbers = [p.name for p in artifact.parameters if p.dtype[0] in "iu" and not p.is_tensor]
    listed = ", ".join(f"do_not_specialize{part}={numbers}" for part in ("", "_on_alignment"))
    named = text.replace(f".jit\ndef {artifact.name}(", f".jit({listed})\ndef {artifact.name}(")
    return named if numbers and schedule.backend_options.get("do_not_specialize") else text


def _device_parameter(parameter: LaunchParameter) -> str:
    dtype = DTYPES_BY_NAME[parameter.dtype]
    # Triton would take a Python number for 32 bits wide where its value fits.
    if parameter.is_tensor or dtype not in (I64, F64):
        return parameter.name
    return f'{parameter.name}: "{spelling.SIGNATURE_DTYPES[dtype]}"'


def _launch_text(artifact: Artifact) -> str:
    """``launch``: the plain Triton call that runs the kernel on torch tensors."""
    writer = SourceWriter()
    names = [parameter.name for parameter in artifact.parameters]
    arguments = [*names, *(description.name for description in artifact.descriptions)]
    arguments += [f"{k}={_in_module(v)}" for k, v in artifact.constexprs]
    arguments += [f"{k}={v!r}" for k, v in artifact.options.items()]
    least_sms = artifact.least_sms
    with writer.block("def launch", names):
        expressions = [*artifact.grid, *(value for _, value in artifact.constexprs)]
        if least_sms or "num_sms" in " ".join(expressions):
            tensor = next((p.name for p in artifact.parameters if p.is_tensor), "")
            writer.line(f"device = torch.cuda.get_device_properties({tensor}.device)")
            writer.line("num_sms = device.multi_processor_count")
        if least_sms:
            # The module may have been taken to a smaller device than it was made for.
            with writer.block(f"if num_sms < {least_sms}"):
                needs = f"its programs wait for each other: {least_sms} multiprocessors are needed"
                writer.line(f'raise RuntimeError("{needs}")')
        for description in artifact.descriptions:
            writer.line(f"{description.name} = {description.call}")
        trailing = "," if len(artifact.grid) == 1 else ""
        writer.line(f"grid = ({', '.join(map(_in_module, artifact.grid))}{trailing})")
        writer.statement(f"{artifact.name}[grid]", arguments)
    return writer.text()


_HOST_FUNCTIONS: dict[str, Callable[..., spelling.Expr]] = {
    **{"add": operator.add, "sub": operator.sub, "mul": operator.mul},
    **{"floordiv": operator.floordiv, "mod": operator.mod},
    **{"maximum": partial(spelling.call, "max"), "minimum": partial(spelling.call, "min")},
}


class _HostExpressions:
    """Translates scalar values of one function."""

    def __init__(
        self,
        parameter_names: Mapping[Value, str],
        definitions: Mapping[Value, Operation],
        symbols: Mapping[str, int],
    ) -> None:
        self._names = parameter_names
        self._definitions = definitions
        self._symbols = symbols
        self.used: set[Value] = set()
        """Parameters that occur in what was translated."""

    def is_known(self, value: Value) -> bool:
        op = self._definitions.get(value)
        if value in self._names or isinstance(op, (Full, BlockSize)):
            return True
        is_arithmetic = isinstance(op, Cast) or (
            isinstance(op, Elementwise) and op.fn in _HOST_FUNCTIONS
        )
        return op is not None and is_arithmetic and all(map(self.is_known, op.operand_values()))

    def scalar(self, value: Value) -> spelling.Expr:
        if value in self._names:
            self.used.add(value)
            return spelling.Expr(self._names[value])
        op = self._definitions.get(value)
        if isinstance(op, Full):
            return spelling.literal(op.value)
        if isinstance(op, BlockSize):
            return spelling.literal(self._symbols[op.block])
        if isinstance(op, Cast):
            return self.scalar(op.x)
        if isinstance(op, Elementwise) and op.fn in _HOST_FUNCTIONS:
            return _HOST_FUNCTIONS[op.fn](*map(self.scalar, op.args))
        raise InternalError(
            loc=value.loc, problem="a grid bound known on the device only needs a persistent launch"
        )


def _launch_grid(function: Function, schedule: Schedule, host: _HostExpressions) -> tuple[str, ...]:
    """The number of programs along each launch axis, as expressions over parameters."""
    grids = [op for op in function.body.ops if isinstance(op, Grid)]
    if program_ids.is_xyz(schedule.pid_type, grids):
        order = program_ids.grid_order(grids[0], schedule.grids.get(grids[0].slot))
        return tuple(str(_axis_count(grids[0], axis, schedule, host)) for axis in order)
    if not is_persistent(schedule.pid_type):
        return (str(_num_tiles(grids, schedule, host)),)
    programs = spelling.Expr(program_ids.num_sms(schedule)) * schedule.num_sm_multiplier
    if not all(host.is_known(bound) for op in grids for bound in (*op.begins, *op.ends)):
        return (str(programs),)
    # No more programs than tiles: without tiles, a program's pipeline prologue must not run either.
    phases = [
        [op for op in phase if isinstance(op, Grid)]
        for phase in program_ids.split_at_barriers(function.body.ops)
    ]
    each = (str(_num_tiles(phase, schedule, host)) for phase in phases if phase)
    counts = list(dict.fromkeys(each))
    tiles = counts[0] if len(counts) == 1 else f"max({', '.join(counts)})"
    return (f"min({programs}, {tiles})",)


def _num_tiles(grids: list[Grid], schedule: Schedule, host: _HostExpressions) -> spelling.Expr:
    total = spelling.literal(0)
    for op in grids:
        counts = (_axis_count(op, axis, schedule, host) for axis in range(len(op.blocks)))
        total += prod(counts, start=spelling.literal(1))
    return total


def _axis_count(op: Grid, axis: int, schedule: Schedule, host: _HostExpressions) -> spelling.Expr:
    """``cdiv(extent, size)``, computed already where both are known."""
    extent = host.scalar(op.ends[axis]) - host.scalar(op.begins[axis])
    size = schedule.symbols[op.blocks[axis]] if op.blocks[axis] else 1
    if isinstance(extent.constant, int):
        return spelling.literal(max(-(-extent.constant // size), 0))
    return extent if size == 1 else spelling.call("cdiv", extent, size)


def _in_module(expression: str) -> str:
    """A launch expression with the names an emitted module has."""
    return re.sub(r"\b(cdiv|next_power_of_2)\b", r"triton.\1", expression)


TRITON_BACKEND = Backend(
    NAME,
    target_kinds=("cuda", "hip"),
    device_types=("cuda",),
    rules=TritonRules,
    emit=emit,
    prepare=_prepare,
    forms=("triton", "ttir", "ttgir", "llir", "ptx", "cubin", "amdgcn", "hsaco"),
    builds_at_launch=True,
    tuning=TuningNeeds(
        builds_beside_runs=True,
        builds_without_torch=True,
        preloads=("triton", "triton.compiler", "tilesmith.backends.triton.build:find_compiler_key"),
    ),
)
