"""A function and its schedule to a Triton module with its launch contract."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from importlib import metadata
from typing import Any

from tilesmith.artifacts import Artifact
from tilesmith.backends.interface import Backend, TuningNeeds
from tilesmith.backends.launch_parameters import launch_parameter
from tilesmith.backends.source_writer import SourceWriter
from tilesmith.backends.triton.emission.emitter import Emitter
from tilesmith.backends.triton.emission.launch_counters import (
    add_counters,
    find_counters,
    has_barriers,
)
from tilesmith.backends.triton.emission.spelling import SIGNATURE_DTYPES, identifier
from tilesmith.backends.triton.emission.value_facts import rounds_visibly
from tilesmith.backends.triton.launch import HostExpressions, LaunchFunction, launch_grid
from tilesmith.backends.triton.ops.helper_functions import HELPER_FUNCTIONS, uses_libdevice
from tilesmith.backends.triton.ops.program_ids import COOPERATIVE, emit_body
from tilesmith.backends.triton.ops.rules import RULES
from tilesmith.backends.triton.schedule_rules import TritonRules
from tilesmith.dtypes import F64, I64
from tilesmith.ir.function import Function, Parameter
from tilesmith.ir.ops.control_flow import LEAST_SMS_FOR_GROUPS
from tilesmith.ir.types import TensorType
from tilesmith.schedule.schedule import Schedule

NAME = "triton"
_OLDEST_SUPPORTED = (3, 6)
# From here on Triton warns unless told, since its default is about to change.
_FUSION_ASKED_FROM = (3, 9)
_HIP_OPTIONS = ("waves_per_eu", "matrix_instr_nonkdim")


def emit(
    function: Function, schedule: Schedule, triton_version: tuple[int, int] | None = None
) -> Artifact:
    """The module that runs ``function`` as ``schedule`` says.

    ``triton_version`` decides which access forms exist; by default it is that of the installed one.
    """
    emitter = Emitter(function, schedule, RULES)
    emitter.counters = find_counters(function)
    emitter.triton_version = triton_version or installed_version()
    with emitter.writer.indented():
        emit_body(emitter)
    names = emitter.spelling.parameter_names
    host = HostExpressions(names, emitter.uses.defining, schedule.symbols)
    grid = launch_grid(function, schedule, host)
    used = emitter.spelling.needs.parameters | host.used
    parameters = [p for p in function.parameters if p.value in used]
    module = _Module(emitter, parameters, grid, _options(emitter))
    return Artifact(
        name=module.name,
        source=module.source(),
        parameters=tuple(launch_parameter(p, names[p.value]) for p in parameters),
        constexprs=tuple(emitter.spelling.needs.constexprs.items()),
        grid=grid,
        options=module.options,
        target=schedule.target,
        backend=NAME,
        descriptions=module.descriptions,
        least_sms=module.least_sms,
    )


@lru_cache(maxsize=1)
def installed_version() -> tuple[int, int]:
    """Major and minor version of the installed Triton, without importing it."""
    try:
        major, minor = metadata.version("triton").split(".")[:2]
    except metadata.PackageNotFoundError:
        return _OLDEST_SUPPORTED
    return int(major), int(minor)


def _options(emitter: Emitter) -> dict[str, Any]:
    schedule = emitter.schedule
    options: dict[str, Any] = {
        "num_warps": _num_warps(schedule),
        "num_stages": schedule.num_stages,
    }
    may_fuse = emitter.is_fast or not rounds_visibly(emitter.function)
    if not may_fuse or emitter.triton_version >= _FUSION_ASKED_FROM:
        options["enable_fp_fusion"] = may_fuse
    if schedule.maxnreg is not None and schedule.target.kind == "cuda":
        options["maxnreg"] = schedule.maxnreg
    if schedule.target.kind == "hip":
        chosen = {name: schedule.backend_options.get(name, 0) for name in _HIP_OPTIONS}
        options.update({name: value for name, value in chosen.items() if value})
    if has_barriers(emitter.function):
        options[COOPERATIVE] = True
    return options


def _num_warps(schedule: Schedule) -> int:
    """As many as asked for; specialised warps come in groups of four."""
    loops = (*schedule.loops.values(), schedule.persistent_loop)
    is_specialized = any(options.warp_specialize for options in loops)
    return max(schedule.num_warps, 4) if is_specialized else schedule.num_warps


class _Module:
    """The emitted module, from its imports to ``launch``."""

    def __init__(
        self,
        emitter: Emitter,
        parameters: list[Parameter],
        grid: tuple[str, ...],
        options: dict[str, Any],
    ) -> None:
        self.name = f"_{identifier(emitter.function.name).lstrip('_')}"
        self.options = options
        self._needs = emitter.spelling.needs
        self.descriptions = tuple(
            replace(description, name=name)
            for description, name in self._needs.descriptions.items()
        )
        self._emitter = emitter
        self.least_sms = LEAST_SMS_FOR_GROUPS if emitter.counters.tickets is not None else 0
        self._parameters = parameters
        self._grid = grid

    def source(self) -> str:
        """The text of the module."""
        writer = SourceWriter()
        self._write_head(writer)
        for name in self._needs.helpers:
            writer.line(f"\n{HELPER_FUNCTIONS[name].rstrip()}")
        for text in self._needs.definitions:
            writer.line(f"\n\n{text.strip()}")
        writer.line("")
        writer.line("")
        writer.line("@triton.jit")
        writer.statement(f"def {self.name}", self._device_parameters(), tail=":")
        head = writer.text()
        tail = SourceWriter()
        self._write_launch(tail)
        return f"{head}{self._emitter.writer.text()}\n\n{tail.text()}"

    def _write_head(self, writer: SourceWriter) -> None:
        needs = self._needs
        writer.line("import torch")
        writer.line("import triton")
        writer.line("import triton.language as tl")
        if needs.has_libdevice or any(map(uses_libdevice, needs.helpers)):
            writer.line("from triton.language.extra import libdevice")
        if self.descriptions:
            writer.line("from triton.tools.tensor_descriptor import TensorDescriptor")
        if needs.constants:
            writer.line("")
        for name, value in needs.constants.items():
            writer.line(f"{name} = tl.constexpr({value})")

    def _device_parameters(self) -> list[str]:
        return [
            *map(self._device_parameter, self._parameters),
            *(description.name for description in self.descriptions),
            *(f"{name}: tl.constexpr" for name in self._needs.constexprs),
        ]

    def _device_parameter(self, parameter: Parameter) -> str:
        value = parameter.value
        name = self._emitter.spelling.parameter_names[value]
        # Triton would take a Python number for 32 bits wide where its value fits.
        if isinstance(value.type, TensorType) or value.type.dtype not in (I64, F64):
            return name
        return f'{name}: "{SIGNATURE_DTYPES[value.type.dtype]}"'

    def _write_launch(self, writer: SourceWriter) -> None:
        names = [self._emitter.spelling.parameter_names[p.value] for p in self._parameters]
        tensors = [
            name
            for name, parameter in zip(names, self._parameters)
            if isinstance(parameter.value.type, TensorType)
        ]
        first = tensors[0] if tensors else ""
        function = LaunchFunction(self.name, names, first, self.descriptions, self.least_sms)
        constexprs = list(self._needs.constexprs.items())
        function.write(writer, self._grid, constexprs, self.options)


TRITON_BACKEND = Backend(
    NAME,
    target_kinds=("cuda", "hip"),
    device_types=("cuda",),
    rules=TritonRules,
    emit=emit,
    prepare=add_counters,
    forms=("triton",),
    builds_at_launch=True,
    tuning=TuningNeeds(
        builds_beside_runs=True,
        builds_without_torch=True,
        preloads=(
            "triton",
            "triton.compiler",
            "tilesmith.backends.triton.build:find_compiler_key",
        ),
    ),
)
