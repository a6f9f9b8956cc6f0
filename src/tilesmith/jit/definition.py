"""What a kernel is before any call: its function, signature, settings, configs and split source."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import torch

import tilesmith.exc as errors
from tilesmith.backends.interface import BackendTable
from tilesmith.diagnostics.kernel_warnings import WarningLog, find_warnings
from tilesmith.diagnostics.location import SourceLocation
from tilesmith.diagnostics.logs import set_up_logs
from tilesmith.dtypes import I32, I64
from tilesmith.frontend.containers import is_host_kind
from tilesmith.frontend.language.host_functions import constexpr
from tilesmith.frontend.source import checks
from tilesmith.frontend.source.kernel_source import KernelSource, find_loops, read_kernel
from tilesmith.frontend.source.split_kernel import SplitKernel, split_kernel
from tilesmith.frontend.source.untouched_tensors import leaves_tensors
from tilesmith.frontend.tracing.tracer import TraceOptions
from tilesmith.jit.function_protocol.objects import plain_settings
from tilesmith.jit.function_protocol.refusals import (
    closure_error,
    definition_line,
    plain_function,
)
from tilesmith.jit.function_protocol.signature import ALLOWED, KernelSignature
from tilesmith.jit.runners import is_interpreted
from tilesmith.jit.specialization_key import find_device
from tilesmith.jit.tuner import Tuner
from tilesmith.runtime.calls.reader import TensorReader, process_readers
from tilesmith.schedule.config import Config
from tilesmith.setting_rules import DOT_PRECISIONS
from tilesmith.settings import Settings

BACKENDS = "tilesmith.backends.table"
_INDEX_DTYPES = {None: None, "int32": I32, "int64": I64}
RESERVED_NAMES = frozenset(
    {"_source_module", "_launcher", "_default_launcher", "_NUM_SM", "_NUM_XCDS"}
)
_TRITON_NAMES = frozenset({"libdevice", "tl", "tl_math", "triton", "triton_helpers"})
"""Modules of generated code. Locals may have these names, unless the user's module means them too:
then one name would stand for two things."""
_MODULE_NAMES = frozenset({"helion", "hl", "math", "operator", "torch"})
"""Names that mean a module in every kernel."""


class KernelDefinition:
    """The fixed part of a kernel; every specialization shares it."""

    def __init__(
        self,
        function: Callable[..., Any],
        configs: Sequence[Config],
        settings: Settings,
        tuner: Tuner | None,
        backends: BackendTable | None = None,
    ) -> None:
        check_definition(function)
        self.given_backends = backends
        self.fn = function
        self.name = function.__name__
        self.arguments = KernelSignature(function)
        self.parameters = self.arguments.names
        self.settings = settings = plain_settings(settings)
        self.configs = list(configs)
        self.tuner = tuner
        set_up_logs(settings.logs)
        self.warnings = WarningLog(find_warnings(settings.ignore_warnings))
        self.constexprs = frozenset(
            position
            for position, parameter in enumerate(self.arguments.plain.parameters.values())
            if _is_constexpr(parameter.annotation)
        )
        self.trace_options = TraceOptions(
            settings.static_shapes,
            DOT_PRECISIONS.get(settings.dot_precision, settings.dot_precision),
            _INDEX_DTYPES[settings.index_dtype],
            is_interpreted=is_interpreted(settings),
        )

    @functools.cached_property
    def source(self) -> KernelSource:
        """The parsed function; it may have several launches."""
        return read_kernel(self.fn)

    @functools.cached_property
    def split(self) -> SplitKernel:
        """Host and device code, checked and compiled on first use."""
        source = find_loops(self.source)
        checks.check_decorators(source)
        checks.check_device_code(source)
        checks.check_named_helpers(source)
        return split_kernel(source)

    @functools.cached_property
    def backends(self) -> BackendTable:
        """What compiles it: all there are unless others were given, loaded for a first call."""
        return self.given_backends or importlib.import_module(BACKENDS).BACKENDS

    def find_tuner(self) -> Tuner:
        """The tuner, or an error that says why there is none."""
        if self.tuner is None:
            problem = "it was made without a tuner (tilesmith.kernel has one)"
            raise errors.AutotuneError(function=self.name, problem=problem)
        return self.tuner

    def find_device(self, arguments: tuple[Any, ...]) -> torch.device:
        """Where a call runs, or an error that says why nobody knows."""
        device = find_device(arguments)
        if device is None:
            raise errors.NoTensorArgs(function=self.name)
        return device

    @functools.cached_property
    def is_read_once(self) -> bool:
        """Whether tensors are at the launch what they were when it was called."""
        return not self.arguments.is_method and leaves_tensors(self.split.source)

    def find_reader(self) -> TensorReader | None:
        """Native code that reads tensors, where it can be had."""
        return process_readers().get(Path(self.settings.cache_dir))

    def constant_positions(self, arguments: tuple[Any, ...]) -> frozenset[int]:
        """Positions of arguments that are compile-time constants."""
        wrapped = {i for i, argument in enumerate(arguments) if isinstance(argument, constexpr)}
        return self.constexprs | wrapped

    def is_host_object(self, position: int, kind: type) -> bool:
        """Whether an argument is the ``self`` of a method, and any object."""
        return position == 0 and self.arguments.is_method and is_host_kind(kind)

    def host_objects(self, arguments: tuple[Any, ...]) -> frozenset[int]:
        """Positions of arguments that only host code knows."""
        kinds = enumerate(map(type, arguments))
        return frozenset(i for i, kind in kinds if self.is_host_object(i, kind))

    def changed(self, *, settings: Settings, configs: Sequence[Config]) -> KernelDefinition:
        """The same function with other settings or configs."""
        made = KernelDefinition(self.fn, configs, settings, self.tuner, self.given_backends)
        if "split" in self.__dict__:
            made.__dict__["split"] = self.split
        return made


def _is_constexpr(annotation: Any) -> bool:
    if isinstance(annotation, str):
        return "constexpr" in annotation.lower()
    return isinstance(annotation, type) and issubclass(annotation, constexpr)


def check_definition(function: Any) -> None:
    """Raise if an object cannot be a kernel."""
    code = plain_function(function).__code__
    loc = SourceLocation(code.co_filename, definition_line(code), function.__name__)
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in ALLOWED:
            raise errors.UnsupportedSignature(
                function=function.__name__, parameter=str(parameter), loc=loc
            )
    if code.co_freevars:
        raise closure_error(function)
    for name in _conflicts(function):
        raise errors.NamingConflict(name=name, loc=loc)


def _conflicts(function: FunctionType) -> list[str]:
    code, module = function.__code__, function.__globals__
    local = [*code.co_varnames, *code.co_cellvars]
    conflicts = [name for name in (*code.co_names, *local) if name in RESERVED_NAMES]
    conflicts += [name for name in local if name in _MODULE_NAMES]
    conflicts += [
        name for name in local if name in _TRITON_NAMES and isinstance(module.get(name), ModuleType)
    ]
    # `co_names` holds attributes too: only what the module really binds is a global.
    known = _MODULE_NAMES | _TRITON_NAMES
    named = [name for name in code.co_names if name in known and name in module]
    return conflicts + [name for name in named if not isinstance(module[name], ModuleType)]
