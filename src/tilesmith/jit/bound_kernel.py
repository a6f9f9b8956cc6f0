"""A kernel bound to one specialization: how it runs, and which config it uses."""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Hashable
from contextlib import closing
from functools import partial
from typing import Any, NoReturn

import torch
from typing_extensions import Unpack, override

import tilesmith.exc as errors
from tilesmith.compiler.interpreter_tiles import split_tile_sizes
from tilesmith.compiler.specialization import Specialization
from tilesmith.diagnostics.kernel_warnings import ConfigEntryIgnored
from tilesmith.diagnostics.logs import Stopwatch, topic_log
from tilesmith.frontend.trace import TraceRequest
from tilesmith.jit.compiled_kernel import CompiledKernel, ConfigLike
from tilesmith.jit.definition import KernelDefinition
from tilesmith.jit.exact_forms import ExactForm
from tilesmith.jit.executables import CapturedLaunch, Executable, Executables
from tilesmith.jit.exploring import ExplorableKernel
from tilesmith.jit.fixed_host.calls import FixedCalls
from tilesmith.jit.launchers import find_launcher
from tilesmith.jit.output.repro import with_caller, writing_repro
from tilesmith.jit.runners import CHECKED, REFERENCE, Runner, choose_runner
from tilesmith.jit.tuner import TuneRequest
from tilesmith.jit.visible.determinism import ordered_call
from tilesmith.jit.visible.profiling import observe
from tilesmith.keywords import SearchKeywords
from tilesmith.runtime.arguments import Launcher
from tilesmith.schedule.config import Config
from tilesmith.schedule.spec import ignored_entries
from tilesmith.store.lookup import describe_arguments, find_stored_config
from tilesmith.targets import Target

CONFIG, TRACE = topic_log("config"), topic_log("trace")


MAX_RECENT = 512
"""Traces of one kernel, each some 100 KB and more: twice as many are kept, of which these are
certainly the latest."""


class BoundKernel(ExplorableKernel, CompiledKernel):
    """A kernel with the types and shapes of its arguments known.

    Example:
        ``bound = kernel.bind((x, y)); print(bound.to_triton_code())``
    """

    def __init__(
        self,
        definition: KernelDefinition,
        arguments: tuple[Any, ...],
        target: Target,
        device: torch.device,
        *,
        kernel: Any = None,
    ) -> None:
        self.kernel = kernel
        """The ``Kernel`` that was bound; it may have other settings by now."""
        made = _specialize(definition, arguments, device)
        super().__init__(definition, made, target, device)
        self._describe(arguments)
        self.written_arguments = self.specialization.written_arguments()
        """Positions of arguments whose memory the kernel stores into."""
        self._executables = Executables(self, find_launcher)
        self._active: Executable | None = None
        self.fixed_calls: FixedCalls | None = None
        """Makes calls of one set of sizes; None where each call needs more."""
        self._lock = threading.RLock()
        self.call: Callable[..., Any] = self._first_call
        """Run with the installed config and all arguments, each of the form that it is bound to."""
        self.call_any: Callable[..., Any] = self._first_call
        """The same with arguments of any form."""
        self.exact_forms: list[ExactForm] = []
        """Ways of its own for some sizes."""
        self.recorded: Callable[..., Any] | None = None
        """The same so that autograd goes back through it; None before the first such call."""

    @override
    def _with_caller(self, text: str) -> str:
        return with_caller(text, self.definition, self.specialization.recall_arguments())

    def capture_launch(self, args: tuple[Any, ...], config: ConfigLike = None) -> CapturedLaunch:
        """What host code hands over at the launch point under a config; nothing is launched."""
        normal = self.config_spec.normalize(self.resolve(config))
        return self._executables.capture(normal, self.definition.arguments.complete(args))

    def with_launcher(self, wrap: Callable[[Launcher], Launcher]) -> Callable[..., Any]:
        """Like ``call``, with something around the launcher, which host code gets instead of it."""
        wrapped = functools.cache(lambda active: self._executables.wrapped(active, wrap))

        def call(*args: Any) -> Any:
            if self._active is None:
                self.ensure_config_exists(args)
            is_whole = len(args) == len(self.definition.parameters)
            complete = args if is_whole else self.definition.arguments.complete(args)
            return wrapped(self._active)(*complete)

        return call

    def compile_config(
        self, config: ConfigLike = None, *, allow_print: bool = True
    ) -> Callable[..., Any]:
        """The kernel with a config fixed, as a plain function of the arguments."""
        run = ordered_call(self, self._executable(self.resolve(config)))
        return lambda *args: run(*self.definition.arguments.complete(args))

    def set_config(self, config: ConfigLike) -> None:
        """Use this config from now on."""
        chosen = self.resolve(config)
        CONFIG.info("%s: %r, as set_config or a search said", self.definition.name, chosen)
        self._activate(self._executable(chosen))
        self.chosen = chosen

    def autotune(
        self,
        args: tuple[Any, ...] | list[Any],
        *,
        force: bool = True,
        budget: float | None = None,
        **options: Unpack[SearchKeywords],
    ) -> Config:
        """Search for the fastest config, use it from now on and return it.

        Args:
            args: arguments to measure with; they are not changed.
            force: search even though configs are given or a winner is stored.
            budget: seconds.
            options: settings (``autotune_`` may be left out), and options of the method.
        """
        request = TuneRequest(force, budget, options)
        values = self.definition.arguments.unpack(args)
        return self.install(self.definition.find_tuner().tune(self, values, request))

    def install(self, config: Config | None) -> Config:
        """Use what a tuner has found; None: the reference interpreter, as no config works."""
        if config is None:
            executable = self._executables.get(None, REFERENCE)
            self._activate(executable)
            return executable.config
        self.set_config(config)
        return config

    def ensure_config_exists(self, args: tuple[Any, ...]) -> None:
        """Choose a config if none is installed: a tuned one, the decorator's, else the default."""
        with self._lock:
            runner = self._runner
            is_tuned = self._active is None and runner.is_compiling
            found = _tuned_config(self, args) if is_tuned else None
            if self._active is not None:
                return
            if found is not None:
                self.chosen = found
            config = _first_config(self, runner)
            is_default = self.chosen is None and not self.configs
            _log_choice(self, config, found)
            if config is None or not is_default or runner is CHECKED:
                self._activate(self._executable(config))
                return
            # Nobody asked for the default: where it does not build, another will do.
            executable = Executable(config, runner, self.config_spec.fallback_configs)
            self._executables.prepare(executable)
            self._activate(executable)

    def _activate(self, executable: Executable) -> None:
        self._active, self.call_any = executable, ordered_call(self, executable)
        is_settled = self.call_any is executable.call
        self.call = executable.recognised if is_settled else self.call_any
        executable.users[:] = [partial(self._shorten, executable)] if is_settled else []
        self.fixed_calls = executable.fixed_calls if is_settled else None
        for form in self.exact_forms:
            form.forget()

    def _shorten(self, executable: Executable, call: Callable[..., Any]) -> None:
        if self._active is executable:
            self.call = call

    def _first_call(self, *args: Any) -> Any:
        with closing(self.specialization.calls):
            with writing_repro(self.definition, args, lambda: self._active and self._active.config):
                self.ensure_config_exists(args)
            return self.call_any(*args)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run with the installed config."""
        if kwargs:
            args = self.definition.arguments.normalize(*args, **kwargs)
        complete = self.definition.arguments.complete(args)
        return observe(self.definition.name, self.call_any, *complete)

    def __reduce__(self) -> NoReturn:
        raise errors.BoundKernelNotPicklable(function=self.definition.name)

    def __deepcopy__(self, memo: dict[int, Any]) -> BoundKernel:
        """Itself: what it holds belongs to the process, whoever refers to it."""
        return self

    def run_ref(self, *args: Any) -> Any:
        """Run with the reference interpreter, whatever the device."""
        reference = self._executables.get(None, REFERENCE)
        return reference.call(*self.definition.arguments.complete(args))

    @property
    def _runner(self) -> Runner:
        return choose_runner(self.settings, self.target, self.definition.backends)

    def _executable(self, config: Config | None) -> Executable:
        if config is not None:
            given, config = config, self.config_spec.normalize(config)
            for entry, loc, problem in ignored_entries(self.config_spec, given, config):
                log = self.definition.warnings
                log.warn(ConfigEntryIgnored, loc=loc, entry=entry, problem=problem)
        return self._executables.get(config, self._runner)


class BoundKernels(dict[Hashable, BoundKernel]):
    """By key. Of many those stay that were used lately, or were given a config.

    Calls that are recognised note nothing: whoever looks for them is made to forget now and then,
    and what is asked for anew is in use.
    """

    def __init__(self, forget_calls: Callable[[], None]) -> None:
        super().__init__()
        self._forget_calls = forget_calls
        self.recent: dict[Hashable, BoundKernel] = {}
        """Those that were asked for since the last time."""

    def find(self, key: Hashable) -> BoundKernel | None:
        """The one that a call asks for."""
        found = self.get(key)
        return None if found is None else self.use(key, found)

    def use(self, key: Hashable, bound: BoundKernel) -> BoundKernel:
        """Note that a call asks for this one."""
        self[key] = self.recent[key] = bound
        if len(self.recent) <= MAX_RECENT:
            return bound
        for old in [k for k in self if k not in self.recent and self[k].chosen is None]:
            del self[old]
        self.recent.clear()
        self.recent[key] = bound
        self._forget_calls()
        return bound

    @override
    def clear(self) -> None:
        super().clear()
        self.recent.clear()


def _specialize(
    definition: KernelDefinition, arguments: tuple[Any, ...], device: torch.device
) -> Specialization:
    request = TraceRequest(
        definition.split,
        arguments,
        definition.constant_positions(arguments),
        definition.trace_options,
        device,
        warnings=definition.warnings,
        host_objects=definition.host_objects(arguments),
    )
    watch = Stopwatch()
    made = Specialization(request, definition.settings, definition.backends)
    if TRACE.isEnabledFor(logging.INFO):
        given = describe_arguments(definition.parameters, arguments)
        TRACE.info("%s(%s): traced in %s", definition.name, given, watch.lap())
    return made


def _tuned_config(bound: BoundKernel, args: tuple[Any, ...]) -> Config | None:
    """What an earlier search has stored, else what the tuner finds now, if it is to search."""
    tuner = bound.definition.tuner
    if tuner is None:
        return None
    is_given = len(bound.configs) == 1 or bound.settings.force_autotune
    if tuner.takes_stored and not is_given:
        stored = find_stored_config(bound, args, bound.configs)
        if stored is not None:
            return stored
    return tuner.first_config(bound, args)


def _log_choice(bound: BoundKernel, config: Config | None, found: Config | None) -> None:
    """Say which config a first call runs with, and why; ``found`` was measured."""
    reason = "the fastest that was measured"
    if found is None:
        is_given = bool(bound.configs)
        default = "the default: nothing was measured or given"
        reason = "given with the decorator" if is_given else default
    shown = "whole tensors as tiles" if config is None else repr(config)
    CONFIG.info("%s: %s, %s", bound.definition.name, shown, reason)


def _first_config(bound: BoundKernel, runner: Runner) -> Config | None:
    """What suits the runner; None: whole tensors as tiles."""
    if runner is REFERENCE and not bound.configs:
        return None
    config = bound.resolve(None)
    if runner is not CHECKED or bound.configs:
        return config
    blocks = split_tile_sizes(bound.function, config.get("block_sizes", []))
    return config.updated(block_sizes=blocks)
