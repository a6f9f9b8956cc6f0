"""``Kernel``: a decorated function; a call finds or makes the specialization of its arguments."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Hashable, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from torch.compiler import is_dynamo_compiling
from typing_extensions import Self, Unpack, override

import tilesmith.exc as errors
from tilesmith.backends.interface import BackendTable
from tilesmith.frontend.trace import HostReturnedError
from tilesmith.frontend.tracing.host_session import HostSession
from tilesmith.frontend.tracing.tracer import find_tracer, running_host
from tilesmith.jit.batching.calls import BatchingHost
from tilesmith.jit.bound_kernel import BoundKernel, BoundKernels
from tilesmith.jit.call_finder import CallFinder
from tilesmith.jit.call_keys import CallKeys
from tilesmith.jit.definition import KernelDefinition
from tilesmith.jit.direct_calls import AnsweredKernel
from tilesmith.jit.function_protocol.objects import KernelMethod, P, R, TypedKernel
from tilesmith.jit.graphs.kernel import GraphKernel
from tilesmith.jit.output.repro import repro_on_failure
from tilesmith.jit.runners import check_modes
from tilesmith.jit.specialization_key import check_devices, check_layouts, find_device
from tilesmith.jit.staging.kernel import BoundStages, StagedKernel, find_staged
from tilesmith.jit.tuner import MultiRequest, Tuner, TuneRequest
from tilesmith.jit.visible.defined_kernel import DefinedKernel
from tilesmith.jit.visible.description import DescribedKernel
from tilesmith.jit.visible.profiling import observe
from tilesmith.keywords import SearchKeywords
from tilesmith.runtime.device import resolve_target, target_of
from tilesmith.schedule.config import Config
from tilesmith.settings import Settings
from tilesmith.targets import Target

Args = tuple[Any, ...]
AnyTarget = str | Target | None
_OF_FUNCTIONS = ("__globals__", "__code__", "__defaults__", "__kwdefaults__")
"""By these tools such as ``torch.library.custom_op`` know a function."""


class Kernel(AnsweredKernel, GraphKernel, DescribedKernel, DefinedKernel, TypedKernel[P, R]):
    """A function under ``@tilesmith.kernel``; made by the decorator, called like the function."""

    def __init__(
        self,
        function: Callable[..., Any] | KernelDefinition,
        *,
        configs: Sequence[Config] = (),
        settings: Settings | None = None,
        key: Callable[..., Hashable] | None = None,
        tuner: Tuner | None = None,
        backends: BackendTable | None = None,
    ) -> None:
        self._lock = threading.RLock()
        if not isinstance(function, KernelDefinition):
            chosen = settings or Settings()
            function = KernelDefinition(function, configs, chosen, tuner, backends)
        super().__init__(function, key)
        assigned = (*functools.WRAPPER_ASSIGNMENTS, *_OF_FUNCTIONS)
        functools.update_wrapper(self, function.fn, assigned)

    @override
    def use(self, definition: KernelDefinition) -> None:
        """Begin anew, with nothing bound."""
        with self._lock:
            super().use(definition)
            self.__dict__.pop("_staged", None)
            self._defaults = definition.arguments.defaults
            self._keys = CallKeys(definition, self.user_key)
            self._bound_kernels = BoundKernels(lambda: self._finder.forget())  # noqa: PLW0108 - made below
            """Kernels for the device of their arguments, by key."""
            self._bound_elsewhere = BoundKernels(lambda: None)
            """Kernels for another target, by target and key."""
            given = self._keys, self._bound_kernels.recent, self._lock, definition, self._call_anew
            self._finder = CallFinder(*given, functools.partial(self._connect, Kernel))
            self._join_graphs(BatchingHost(self))

    def specialization_key(self, args: tuple[Any, ...]) -> Hashable:
        """What makes two calls share a compiled kernel."""
        return self._keys.key(args)

    def bind(self, args: tuple[Any, ...] | list[Any], *, target: AnyTarget = None) -> BoundKernel:
        """The kernel for these arguments' types and shapes; ``target`` asks for another device."""
        arguments = self.definition.arguments.unpack(args)
        if self.staged is not None:
            return cast("BoundKernel", BoundStages(self.staged, arguments, target, self))
        try:
            with self._lock:
                found = self._find(arguments, target)
                if found is None:
                    return self._bind_new(arguments, target)
                found.specialization.remember(arguments)
                if not self.definition.settings.static_shapes:
                    # What it shows is for these: sizes that were equal in the trace may differ.
                    found.capture_launch(arguments)
                return found
        except HostReturnedError:
            source = self.definition.split.source
            raise errors.NoDeviceLoopsInKernel(
                function=self.name, loc=source.location(source.tree)
            ) from None

    @property
    def staged(self) -> StagedKernel | None:
        """What runs it where it has several launches."""
        return self._staged

    @functools.cached_property
    def _staged(self) -> StagedKernel | None:
        return find_staged(self.definition, Kernel)

    def _find(self, arguments: Args, target: AnyTarget) -> BoundKernel | None:
        if self._keys.notice_marks(arguments):
            self._forget()
        key = self._keys.key(arguments)
        if target:
            return self._bound_elsewhere.find((target, key))
        return self._bound_kernels.find(key)

    def _bind_new(self, args: Args, target: AnyTarget, *, is_called: bool = False) -> BoundKernel:
        check_modes(self.definition.settings)
        device = self.definition.find_device(args)
        check_layouts(args, self.definition.parameters)
        check_devices(args, self.definition.parameters, device)
        resolved = target_of(device) if target is None else resolve_target(target)
        with repro_on_failure(self.definition, args):
            bound = BoundKernel(self.definition, args, resolved, device, kernel=self)
        if not is_called:
            bound.specialization.calls.close()
        writes = bool(bound.written_arguments)
        if self._keys.extend(bound.specialization.specialized_values(), writes_arguments=writes):
            self._forget()
        key = self._keys.key(args)
        if target is None:
            return self._bound_kernels.use(key, bound)
        return self._bound_elsewhere.use((target, key), bound)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the kernel."""
        values: Any = args
        if is_dynamo_compiling():  # False, unless Dynamo traces this
            return self._in_graphs.call_as_written(values, kwargs)
        rest = None if kwargs else self._defaults.get(len(args))
        if rest is None:
            values = self.definition.arguments.normalize(*args, **kwargs)
        elif rest:
            values = args + rest
        return self._finder.run(*values)

    def _call_anew(self, *args: Any) -> Any:
        # Arguments of types that are new, or at least rare, or of another form.
        if find_tracer() is not None:
            raise errors.NestedKernelCallsNotSupported(function=self.name)
        args = self.definition.arguments.plain_numbers(args)
        recorded = self._recorded_call(args)
        return observe(self.name, self.call_plainly, args) if recorded is None else recorded()

    @override
    def _bound_alone(self, args: tuple[Any, ...]) -> Any:
        if self.staged is not None:
            return None
        with self._lock:
            bound = self._find(args, None) or self._bind_new(args, None, is_called=True)
            self._finder.add(args)
            return bound

    def call_plainly(self, args: tuple[Any, ...]) -> Any:
        """Run with tensors that have memory, whoever traces."""
        found = self._finder.find(*args)
        if found is not None:
            return found.call(*args)
        if self.staged is not None:
            return self.staged.call(args)
        try:
            bound = self._bound_alone(args)
        except HostReturnedError:
            return _run_host_alone(self.definition, args)
        return bound.call(*args)

    def autotune(
        self,
        args: tuple[Any, ...] | list[Any],
        *,
        force: bool = True,
        budget: float | None = None,
        **options: Unpack[SearchKeywords],
    ) -> Config:
        """Search for the fastest config for these arguments, use it from now on and return it.

        Example:
            ``kernel.autotune((x, y), budget=15)``; for more see ``BoundKernel.autotune``.
        """
        return self.bind(args).autotune(args, force=force, budget=budget, **options)

    def autotune_multi(
        self,
        arg_sets: Sequence[tuple[Any, ...]],
        *,
        aggregation: str = "geomean",
        relative_to: str | None = None,
        force: bool = True,
        budget: float | None = None,
        **options: Any,
    ) -> Config:
        """Search for the one config that is best for several sets of arguments together.

        Args:
            arg_sets: arguments, each a workload.
            aggregation: ``geomean`` or ``max`` of the times.
            relative_to: None for milliseconds; ``default`` or ``baseline`` for ratios to the
                default config's time or to that of ``autotune_baseline_fn``.
            force: search even though a winner is stored.
            budget: seconds, for all workloads together.
            options: as for ``autotune``; ``cache_tag`` names the set of workloads in the cache.
        """
        if self.staged is not None:
            options |= {"aggregation": aggregation, "relative_to": relative_to, "force": force}
            values = [self.definition.arguments.unpack(args) for args in arg_sets]
            return self.staged.autotune_multi(values, budget, options)
        tag = options.pop("cache_tag", None)
        request = MultiRequest(
            TuneRequest(force, budget, options), aggregation, relative_to, cache_tag=tag
        )
        cases = [(self.bind(args), self.definition.arguments.unpack(args)) for args in arg_sets]
        config = self.definition.find_tuner().tune_multi(cases, request)
        return next(iter([bound.install(config) for bound, _ in cases]))

    def reset(self) -> None:
        """Forget everything compiled."""
        with self._lock:
            self._keys.reset()
            self._forget()
            self.__dict__.pop("_staged", None)

    def _forget(self) -> None:
        self._bound_kernels.clear()
        self._bound_elsewhere.clear()
        self._backwards.clear()
        self._finder.forget()


class MethodKernel(Kernel):
    """A kernel that was written in a class. Others are no descriptors: they get no ``self``."""

    if not TYPE_CHECKING:  # to a checker every kernel in a class is a method

        def __get__(self, instance: object, owner: type | None = None) -> Self | KernelMethod:
            """The kernel with its ``self``, where it is called on an instance."""
            return self if instance is None else KernelMethod(self, instance)


def _run_host_alone(definition: KernelDefinition, args: tuple[Any, ...]) -> Any:
    """For arguments with which host code returns before any device loop."""
    nowhere = SimpleNamespace(device=find_device(args))
    with running_host(HostSession(device=nowhere.device)):
        return definition.split.host_function()(nowhere, *args)
