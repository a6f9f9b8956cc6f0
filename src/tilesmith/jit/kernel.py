"""``Kernel``: a decorated function; a call finds or makes the specialization of its arguments."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from tilesmith.diagnostics import errors
from tilesmith.frontend.host_functions import constexpr
from tilesmith.frontend.host_session import HostSession
from tilesmith.frontend.sessions import find_tracer, running_host
from tilesmith.frontend.trace import HostReturnedError
from tilesmith.jit.bound_kernel import BoundKernel
from tilesmith.jit.definition import KernelDefinition
from tilesmith.jit.specialization import KeyMaker, alias_pattern, check_devices, find_device
from tilesmith.runtime.device import target_of
from tilesmith.schedule.config import Config
from tilesmith.settings import Settings
from tilesmith.targets import Target, parse_target


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
        self.definition = KernelDefinition(function, configs, settings or Settings())
        functools.update_wrapper(self, function)
        self._user_key = key
        self._keys = KeyMaker(static_shapes=self.settings.static_shapes)
        self._bound: dict[Hashable, BoundKernel] = {}
        self._extractors: list[Callable[..., int]] = []
        self._is_alias_sensitive = False
        """Whether the kernel writes its arguments: then it matters which of them share storage."""
        self._lock = threading.RLock()

    @property
    def fn(self) -> Callable[..., Any]:
        """The decorated function."""
        return self.definition.fn

    @property
    def name(self) -> str:
        """The function's name."""
        return self.definition.name

    @property
    def signature(self) -> inspect.Signature:
        """The function's signature."""
        return self.definition.signature

    @property
    def settings(self) -> Settings:
        """The settings, fixed when the function was decorated."""
        return self.definition.settings

    @property
    def configs(self) -> list[Config]:
        """Configs given with the decorator."""
        return self.definition.configs

    def normalize_args(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Positional arguments with keywords placed and defaults applied."""
        return self.definition.normalize_args(*args, **kwargs)

    def specialization_key(self, args: tuple[Any, ...]) -> Hashable:
        """What makes two calls share a compiled kernel."""
        parts: list[Hashable] = []
        for position, (name, argument) in enumerate(zip(self.definition.parameters, args)):
            if position in self.definition.constexprs:
                value = argument.value if isinstance(argument, constexpr) else argument
                parts.append(self._keys.constants.key(value, name))
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
        """The kernel for these arguments' types and shapes; ``target`` asks for another device."""
        arguments = self.definition.normalize_args(*args)
        try:
            return self._find_or_bind(arguments, target)
        except HostReturnedError:
            source = self.definition.split.source
            raise errors.NoDeviceLoopsInKernel(
                function=self.name, loc=source.location(source.tree)
            ) from None

    def _find_or_bind(self, arguments: tuple[Any, ...], target: str | Target | None) -> BoundKernel:
        found = self._bound.get((target, self.specialization_key(arguments)))
        if found is not None:
            return found
        with self._lock:
            # Another thread may have bound it while this one waited.
            found = self._bound.get((target, self.specialization_key(arguments)))
            return self._bind_new(arguments, target) if found is None else found

    def _bind_new(self, arguments: tuple[Any, ...], target: str | Target | None) -> BoundKernel:
        device = find_device(arguments)
        if device is None:
            raise errors.NoTensorArgs(function=self.name)
        check_devices(arguments, self.definition.parameters, device)
        resolved = parse_target(target) if isinstance(target, str) else target
        bound = BoundKernel(self.definition, arguments, resolved or target_of(device), device)
        extractors = bound.specialized_values()
        if len(extractors) > len(self._extractors):
            # Keys made so far lack the newly found values.
            self._extractors = extractors
            self._bound.clear()
        self._is_alias_sensitive |= bound.writes_arguments()
        self._bound[(target, self.specialization_key(arguments))] = bound
        return bound

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the kernel."""
        if find_tracer() is not None:
            raise errors.NestedKernelCallsNotSupported(function=self.name)
        if kwargs:
            args = self.definition.normalize_args(*args, **kwargs)
        else:
            args = self.definition.with_defaults(args)
        bound = self._bound.get((None, self.specialization_key(args)))
        if bound is None:
            try:
                bound = self._find_or_bind(args, None)
            except HostReturnedError:
                return self._run_host_alone(args)
        return bound(*args)

    def _run_host_alone(self, args: tuple[Any, ...]) -> Any:
        """For arguments with which host code returns before any device loop."""
        with running_host(HostSession()):
            return self.definition.split.host_function()(None, *args)

    def reset(self) -> None:
        """Forget everything compiled."""
        with self._lock:
            self._bound.clear()
            self._extractors.clear()

    def kernel_source(self) -> str:
        """The source text of the function."""
        return inspect.getsource(self.fn)


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
