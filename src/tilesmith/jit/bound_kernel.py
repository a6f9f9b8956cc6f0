"""A kernel bound to one specialization.

Its traces, its Config specification, its compiled forms.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

from tilesmith.analysis.effects import tensors_written
from tilesmith.artifacts import Artifact
from tilesmith.frontend.trace import TraceRequest
from tilesmith.ir.function import Function
from tilesmith.jit.code_forms import check_form, show_native
from tilesmith.jit.config_choice import ConfigChoice, ConfigLike
from tilesmith.jit.definition import KernelDefinition
from tilesmith.jit.emission import Emission
from tilesmith.jit.executables import Executable, ExecutableStore
from tilesmith.jit.launch_capture import CapturedLaunch
from tilesmith.jit.launchers import LauncherMaker
from tilesmith.jit.runners import COMPILING, Runner, choose_runner
from tilesmith.jit.specs import SpecStore
from tilesmith.jit.tuner import TuneRequest
from tilesmith.jit.variants import VariantStore
from tilesmith.runtime.device import resolve_target
from tilesmith.runtime.native.host_cpu import host_target
from tilesmith.schedule.config import Config
from tilesmith.schedule.facts.collect import Facts
from tilesmith.schedule.spec import ConfigSpec
from tilesmith.settings import Settings
from tilesmith.targets import Target, parse_target

DEFAULT_GPU_TARGET = "cuda:90"
"""What Triton code is shown for when there is no GPU."""


class BoundKernel:
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
    ) -> None:
        self.definition = definition
        self.target = target
        self.device = device
        self._variants = VariantStore(_trace_request(definition, arguments, device))
        self._specs = SpecStore(self.settings)
        launchers = LauncherMaker(definition, self._specs, target, device)
        self._executables = ExecutableStore(definition, self._variants, launchers, device)
        self.choice = ConfigChoice(definition, self._variants, self._specs)
        self._emission = Emission(definition, self._variants, self._specs)
        self._active: Executable | None = None
        self._lock = threading.RLock()
        self.call: Callable[..., Any] = self._first_call
        """Run with the installed config and all arguments, none left to their defaults."""

    @property
    def settings(self) -> Settings:
        """The kernel's settings."""
        return self.definition.settings

    @property
    def configs(self) -> list[Config]:
        """Configs given with the decorator."""
        return self.definition.configs

    @property
    def function(self) -> Function:
        """The IR after the standard passes (of the first trace)."""
        return self._variants.default.function

    @property
    def config_spec(self) -> ConfigSpec:
        """What a Config of this kernel may contain."""
        return self._specs.get(self._variants.default, self.target)

    @property
    def facts(self) -> Facts:
        """What it multiplies, reduces and moves, to print; runtime sizes are of the first call."""
        return self.config_spec.facts.with_sizes(self._variants.default.trace.observed)

    def default_config(self) -> Config:
        """A sensible config, without any search."""
        return self.choice.default(self.target)

    def specialized_values(self) -> list[Callable[..., int]]:
        """How to get the values that host code turned into constants from the arguments."""
        return [origin for origin, _ in self._variants.default.trace.session.specialized]

    @property
    def written_arguments(self) -> frozenset[int]:
        """Positions of arguments whose memory the kernel stores into."""
        trace = self._variants.default.trace
        names = set(tensors_written(trace.function))
        tensors = [p.value for p in trace.function.parameters if p.value.name in names]
        written = {tensor.tensor.alias for tensor in tensors}
        return frozenset(i for i, found in enumerate(trace.argument_aliases) if found & written)

    def to_triton_code(
        self, config: ConfigLike = None, *, target: str | Target | None = None, **_: Any
    ) -> str:
        """The Triton module for a config, with or without a GPU.

        ``target`` is any of ``cuda:NN`` or ``hip:gfxNNN``; by default the bound device, else
        cuda:90.
        """
        gpu = _gpu_target(_any_target(target, self.target))
        return self._emission.triton_module(self.choice.resolve(config, gpu), gpu)

    def to_code(
        self,
        config: ConfigLike = None,
        *,
        form: str = "",
        target: str | Target | None = None,
        **options: Any,
    ) -> str:
        """The generated code: Triton source on a GPU, the loop nest on a CPU.

        ``form`` asks for one of ``triton``, ``loops``, ``llvm`` and ``assembly``.
        """
        resolved = _any_target(target, self.target)
        check_form(form)
        form = form or ("triton" if resolved.is_gpu else "loops")
        if form == "triton":
            return self.to_triton_code(config, target=target, **options)
        native = host_target() if resolved.is_gpu else resolved
        return show_native(self.to_artifact(config, target=native), form)

    def to_artifact(
        self, config: ConfigLike = None, *, target: str | Target | None = None
    ) -> Artifact:
        """What the launcher gets for a config: source and launch contract."""
        resolved = _any_target(target, self.target)
        return self._emission.artifact(self.choice.resolve(config, resolved), resolved)

    def capture_launch(self, args: tuple[Any, ...], config: ConfigLike = None) -> CapturedLaunch:
        """What host code hands over at the launch point under a config; nothing is launched."""
        normal = self.config_spec.normalize(self.choice.resolve(config, self.target))
        return self._executables.capture(normal, self.definition.with_defaults(args))

    def compile_config(
        self, config: ConfigLike = None, *, allow_print: bool = True
    ) -> Callable[..., Any]:
        """The kernel with a config fixed, as a plain function of the arguments."""
        executable = self._executable(self.choice.resolve(config, self.target))
        return lambda *args: executable.call(*self.definition.with_defaults(args))

    def set_config(self, config: ConfigLike) -> None:
        """Use this config from now on."""
        chosen = self.choice.resolve(config, self.target)
        self._activate(self._executable(chosen))
        self.choice.chosen = chosen

    def autotune(
        self,
        args: tuple[Any, ...] | list[Any],
        *,
        force: bool = True,
        budget: float | None = None,
        **options: Any,
    ) -> Config:
        """Search for the fastest config, use it from now on and return it.

        Args:
            args: arguments to measure with; they are not changed.
            force: search even though configs are given or a winner is stored.
            budget: seconds.
            options: settings (``autotune_`` may be left out), and options of the method.
        """
        request = TuneRequest(force, budget, options)
        values = self.definition.unpack_args(args)
        return self.install(self.definition.find_tuner().tune(self, values, request))

    def install(self, config: Config | None) -> Config:
        """Use what a tuner has found; None: the reference interpreter, as no config works."""
        if config is None:
            executable = self._executables.get(None, Runner.REFERENCE)
            self._activate(executable)
            return executable.config
        self.set_config(config)
        return config

    def ensure_config_exists(self, args: tuple[Any, ...]) -> None:
        """Choose a config if none is installed: a tuned one, the decorator's, else the default."""
        with self._lock:
            is_tuned = self._active is None and self._runner in COMPILING
            tuner = self.definition.tuner if is_tuned else None
            found = tuner.first_config(self, args) if tuner else None
            if self._active is None:
                self._activate(self._first_executable(found))

    def _activate(self, executable: Executable) -> None:
        self._active, self.call = executable, executable.call

    def _first_call(self, *args: Any) -> Any:
        self.ensure_config_exists(args)
        return self.call(*args)

    def _first_executable(self, found: Config | None) -> Executable:
        if found is not None:
            self.choice.chosen = found
            return self._executable(found)
        config = self.choice.first(self._runner, self.target)
        if config is None or not self.choice.is_default or self._runner is Runner.CHECKED:
            return self._executable(config)
        return self._executables.first_of(config, self.config_spec.fallback_configs, self._runner)

    def __call__(self, *args: Any) -> Any:
        """Run with the installed config."""
        return self.call(*self.definition.with_defaults(args))

    def run_ref(self, *args: Any) -> Any:
        """Run with the reference interpreter, whatever the device."""
        reference = self._executables.get(None, Runner.REFERENCE)
        return reference.call(*self.definition.with_defaults(args))

    @property
    def _runner(self) -> Runner:
        return choose_runner(self.settings, self.target)

    def _executable(self, config: Config | None) -> Executable:
        if config is not None:
            config = self.config_spec.normalize(config)
        return self._executables.get(config, self._runner)


def _trace_request(
    definition: KernelDefinition, arguments: tuple[Any, ...], device: torch.device
) -> TraceRequest:
    return TraceRequest(
        definition.split,
        arguments,
        definition.constant_positions(arguments),
        definition.trace_options,
        device,
        warnings=definition.warnings,
    )


def _any_target(target: str | Target | None, default: Target) -> Target:
    return default if target is None else resolve_target(target)


def _gpu_target(target: Target) -> Target:
    return target if target.is_gpu else parse_target(DEFAULT_GPU_TARGET)
