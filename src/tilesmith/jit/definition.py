"""What a kernel is before any call: its function, signature, settings, configs and split source."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from tilesmith.diagnostics import errors
from tilesmith.diagnostics.kernel_warnings import WarningLog, find_warnings
from tilesmith.diagnostics.wording import kind_of
from tilesmith.dtypes import I32, I64
from tilesmith.frontend.language.host_functions import constexpr
from tilesmith.frontend.source.checks import (
    check_decorators,
    check_device_code,
    check_named_helpers,
)
from tilesmith.frontend.source.kernel_source import parse_kernel
from tilesmith.frontend.source.split_kernel import SplitKernel, split_kernel
from tilesmith.frontend.tracing.tracer import TraceOptions
from tilesmith.jit.check_definition import check_definition
from tilesmith.jit.runners import is_interpreted
from tilesmith.jit.tuner import Tuner
from tilesmith.runtime.calls.reader import TensorReader, process_readers
from tilesmith.schedule.config import Config
from tilesmith.settings import Settings

_REQUIRED = inspect.Parameter.empty
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_INDEX_DTYPES = {None: None, "int32": I32, "int64": I64}


class KernelDefinition:
    """The fixed part of a kernel; every specialization shares it."""

    def __init__(
        self,
        function: Callable[..., Any],
        configs: Sequence[Config],
        settings: Settings,
        tuner: Tuner | None = None,
    ) -> None:
        check_definition(function)
        self.fn = function
        self.name = function.__name__
        self.signature = inspect.signature(function)
        self.parameters = tuple(self.signature.parameters)
        self.settings = settings
        self.configs = list(configs)
        self.tuner = tuner
        self.warnings = WarningLog(find_warnings(settings.ignore_warnings))
        self.constexprs = frozenset(
            position
            for position, parameter in enumerate(self.signature.parameters.values())
            if _is_constexpr(parameter.annotation)
        )
        self.trace_options = TraceOptions(
            settings.static_shapes,
            settings.dot_precision,
            _INDEX_DTYPES[settings.index_dtype],
            is_interpreted=is_interpreted(settings),
        )

    @functools.cached_property
    def _tails(self) -> dict[int, tuple[Any, ...]]:
        """The defaults that complete a number of positional arguments, where that is allowed."""
        parameters = list(self.signature.parameters.values())
        if not all(parameter.kind in _POSITIONAL for parameter in parameters):
            return {}
        defaults = [parameter.default for parameter in parameters]
        first = next((i for i, d in enumerate(defaults) if d is not _REQUIRED), len(defaults))
        return {count: tuple(defaults[count:]) for count in range(first, len(defaults) + 1)}

    @functools.cached_property
    def split(self) -> SplitKernel:
        """Host and device code, parsed and compiled on first use."""
        source = parse_kernel(self.fn)
        check_decorators(source)
        check_device_code(source)
        check_named_helpers(source)
        return split_kernel(source)

    def find_tuner(self) -> Tuner:
        """The tuner, or an error that says why there is none."""
        if self.tuner is None:
            problem = "it was made without a tuner (tilesmith.kernel has one)"
            raise errors.AutotuneError(function=self.name, problem=problem)
        return self.tuner

    def find_reader(self) -> TensorReader | None:
        """Native code that reads tensors, where it can be had."""
        return process_readers().get(Path(self.settings.cache_dir))

    def constant_positions(self, arguments: tuple[Any, ...]) -> frozenset[int]:
        """Positions of arguments that are compile-time constants."""
        wrapped = {i for i, argument in enumerate(arguments) if isinstance(argument, constexpr)}
        return self.constexprs | wrapped

    def normalize_args(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Positional arguments with keywords placed and defaults applied."""
        tail = None if kwargs else self._tails.get(len(args))
        if tail is not None:
            return args + tail
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            problem = "Too many arguments" if len(args) > len(self.parameters) else str(error)
            raise errors.WrongArguments(
                function=self.name, problem=problem, signature=str(self.signature)
            ) from error
        bound.apply_defaults()
        return tuple(bound.arguments.values())

    def unpack_args(self, args: object) -> tuple[Any, ...]:
        """The same from a tuple or list; a lone tensor would be taken apart into its rows."""
        if isinstance(args, (tuple, list)):
            return self.normalize_args(*cast("Sequence[Any]", args))
        raise errors.WrongArguments(
            function=self.name,
            problem=f"its arguments come in a tuple, found {kind_of(args)}",
            signature=str(self.signature),
        )

    def with_defaults(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """All positional arguments, defaults filled in."""
        return args if len(args) == len(self.parameters) else self.normalize_args(*args)


def _is_constexpr(annotation: Any) -> bool:
    if isinstance(annotation, str):
        return "constexpr" in annotation.lower()
    return isinstance(annotation, type) and issubclass(annotation, constexpr)
