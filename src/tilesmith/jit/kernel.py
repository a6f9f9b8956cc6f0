"""``Kernel``: a decorated function. A call finds the specialization of its arguments, makes it if new, and runs it."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from tilesmith.diagnostics import errors
from tilesmith.dtypes import I32, I64
from tilesmith.frontend.check_decorators import check_decorators
from tilesmith.frontend.check_device_code import check_device_code
from tilesmith.frontend.check_helpers import check_named_helpers
from tilesmith.frontend.host_code import SplitKernel, split_kernel
from tilesmith.frontend.host_functions import constexpr
from tilesmith.frontend.sessions import find_tracer
from tilesmith.frontend.source import parse_kernel
from tilesmith.frontend.tracer import TraceOptions
from tilesmith.jit.bound_kernel import BoundKernel
from tilesmith.jit.check_definition import check_definition
from tilesmith.jit.specialization import KeyMaker, alias_pattern, check_devices, find_device
from tilesmith.runtime.device import target_of
from tilesmith.schedule.config import Config
from tilesmith.settings import Settings
from tilesmith.targets import Target, parse_target

_INDEX_DTYPES = {None: None, "int32": I32, "int64": I64}


class Kernel:
    """A function under ``@tilesmith.kernel``; made by the decorator, called like the function."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        configs: Sequence[Config] = (),
        settings: Settings | None = None,
        key: Callable[..., Hashable] | None = None,
    ) -> None:
        check_definition(function)
        functools.update_wrapper(self, function)
        self.fn = function
        self.name = function.__name__
        self.signature = inspect.signature(function)
        self.settings = settings or Settings()
        self.configs = list(configs)
        self._user_key = key
        self._parameters = tuple(self.signature.parameters)
        self._constexprs = frozenset(
            position
            for position, parameter in enumerate(self.signature.parameters.values())
            if _is_constexpr(parameter.annotation)
        )
        self._keys = KeyMaker(static_shapes=self.settings.static_shapes)
        self._bound: dict[Hashable, BoundKernel] = {}
        self._extractors: list[Callable[..., int]] = []
        self._is_alias_sensitive = False
        """Whether the kernel writes its arguments: then it matters which of them share storage."""
        self._lock = threading.RLock()
        self.trace_options = TraceOptions(
            self.settings.static_shapes,
            self.settings.dot_precision,
            _INDEX_DTYPES[self.settings.index_dtype],
        )

    @functools.cached_property
    def split(self) -> SplitKernel:
        """Host and device code, parsed and compiled on first use."""
        source = parse_kernel(self.fn)
        check_decorators(source)
        check_device_code(source)
        check_named_helpers(source)
        return split_kernel(source)

    def constant_positions(self, arguments: tuple[Any, ...]) -> frozenset[int]:
        """Positions of arguments that are compile-time constants."""
        wrapped = {i for i, argument in enumerate(arguments) if isinstance(argument, constexpr)}
        return self._constexprs | wrapped

    def normalize_args(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Positional arguments with keywords placed and defaults applied."""
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            problem = "Too many arguments" if len(args) > len(self._parameters) else str(error)
            raise errors.WrongArguments(
                function=self.name, problem=problem, signature=str(self.signature)
            ) from error
        bound.apply_defaults()
        return tuple(bound.arguments.values())

    def with_defaults(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """All positional arguments, defaults filled in."""
        return args if len(args) == len(self._parameters) else self.normalize_args(*args)

    def specialization_key(self, args: tuple[Any, ...]) -> Hashable:
        """What makes two calls share a compiled kernel."""
        parts: list[Hashable] = []
        for position, (name, argument) in enumerate(zip(self._parameters, args)):
            if position in self._constexprs:
                parts.append(argument.value if isinstance(argument, constexpr) else argument)
            else:
                parts.append(self._keys.key(argument, name))
        parts.extend(extract(*args) for extract in self._extractors)
        if self._is_alias_sensitive:
            parts.append(alias_pattern(args))
        if self._user_key is not None:
            parts.append(self._user_key(*args))
        return tuple(parts)

    def bind(
        self, args: tuple[Any, ...] | list[Any], *, target: str | Target | None = None
    ) -> BoundKernel:
        """The kernel for these arguments' types and shapes. ``target`` is for code of another device."""
        arguments = self.normalize_args(*args)
        key = self.specialization_key(arguments)
        found = self._bound.get((target, key))
        if found is not None:
            return found
        with self._lock:
            return self._bind_new(arguments, target)

    def _bind_new(self, arguments: tuple[Any, ...], target: str | Target | None) -> BoundKernel:
        device = find_device(arguments)
        if device is None:
            raise errors.NoTensorArgs(function=self.name)
        check_devices(arguments, self._parameters, device)
        resolved = parse_target(target) if isinstance(target, str) else target
        bound = BoundKernel(self, arguments, resolved or target_of(device), device)
        for extract, _ in bound.specialized_values():
            self._extractors.append(extract)
        self._is_alias_sensitive |= bound.writes_arguments()
        # Tracing may have found values to specialise on, so the key is taken now.
        self._bound[(target, self.specialization_key(arguments))] = bound
        return bound

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the kernel."""
        if find_tracer() is not None:
            raise errors.NestedKernelCallsNotSupported(function=self.name)
        args = self.normalize_args(*args, **kwargs) if kwargs else self.with_defaults(args)
        bound = self._bound.get((None, self.specialization_key(args)))
        if bound is None:
            bound = self.bind(args)
        return bound(*args)

    def reset(self) -> None:
        """Forget everything compiled."""
        with self._lock:
            self._bound.clear()
            self._extractors.clear()

    def kernel_source(self) -> str:
        """The source text of the function."""
        return inspect.getsource(self.fn)


def _is_constexpr(annotation: Any) -> bool:
    if isinstance(annotation, str):
        return "constexpr" in annotation.lower()
    return annotation is constexpr or (
        isinstance(annotation, type) and issubclass(annotation, constexpr)
    )


def kernel(
    fn: Callable[..., Any] | None = None,
    *,
    config: Config | Mapping[str, Any] | None = None,
    configs: Sequence[Config | Mapping[str, Any]] | None = None,
    key: Callable[..., Hashable] | None = None,
    **settings: Any,
) -> Any:
    """Turn a function with device loops into a kernel; bare or with arguments.

    Example:
        ``@tilesmith.kernel(config=tilesmith.Config(block_sizes=[64]), static_shapes=False)``
    """
    if fn is None:
        return functools.partial(kernel, config=config, configs=configs, key=key, **settings)
    if config is not None and configs is not None:
        raise errors.ConflictingArguments(first="config", second="configs")
    given = [config] if config is not None else list(configs or ())
    resolved = [c if isinstance(c, Config) else Config.from_dict(c) for c in given]
    return Kernel(fn, configs=resolved, settings=_settings(settings), key=key)


def _settings(given: Mapping[str, Any]) -> Settings:
    whole = given.get("settings")
    if whole is None:
        return Settings(**given)
    if len(given) > 1:
        raise errors.ConflictingArguments(first="settings", second="other settings keywords")
    return whole
