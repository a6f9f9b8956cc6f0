"""A kernel bound to one specialization: what a user asks of it, and which config it uses."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

import tilesmith.exc as errors
from tilesmith.artifacts import Artifact
from tilesmith.backends.interface import BackendTable
from tilesmith.compiler.interpreter_tiles import split_tile_sizes
from tilesmith.compiler.specialization import Specialization, Variant
from tilesmith.frontend.trace import TraceRequest
from tilesmith.ir.function import Function
from tilesmith.jit.definition import KernelDefinition
from tilesmith.jit.executables import CapturedLaunch, Executable, Executables
from tilesmith.jit.launchers import LaunchSite
from tilesmith.jit.runners import CHECKED, REFERENCE, Runner, choose_runner
from tilesmith.jit.tuner import TuneRequest
from tilesmith.runtime.device import resolve_target
from tilesmith.runtime.native.host_cpu import host_target
from tilesmith.runtime.native.machine_code import code_maker
from tilesmith.schedule.config import Config
from tilesmith.schedule.facts.fact_set import Facts
from tilesmith.schedule.spec import ConfigSpec
from tilesmith.settings import Settings
from tilesmith.store.lookup import find_stored_config
from tilesmith.targets import Target, parse_target

ConfigLike = Config | Mapping[str, Any] | None
DEFAULT_GPU_TARGET = "cuda:90"
"""What Triton code is shown for when there is no GPU."""
_ALIASES = {"asm": "assembly"}


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
        request = _trace_request(definition, arguments, device)
        self.specialization = Specialization(request, definition.settings, definition.backends)
        """What is compiled, for any target."""
        self.written_arguments = self.specialization.written_arguments()
        """Positions of arguments whose memory the kernel stores into."""
        self._executables = Executables(LaunchSite(definition, self.specialization, target, device))
        self.chosen: Config | None = None
        """What ``set_config`` was given or a tuner has found."""
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
        return self.specialization.default.function

    @property
    def traced_function(self) -> Function:
        """The IR as it was traced first, before any pass."""
        return self.specialization.default.trace.function

    @property
    def config_spec(self) -> ConfigSpec:
        """What a Config of this kernel may contain."""
        return self.specialization.spec(self.target)

    @property
    def facts(self) -> Facts:
        """What it multiplies, reduces and moves, to print; runtime sizes are of the first call."""
        return self.config_spec.facts.with_sizes(self.specialization.default.trace.observed)

    def default_config(self) -> Config:
        """A sensible config, without any search."""
        return self.specialization.default_config(self.target)

    def order_dependence(self, config: Config) -> str:
        """Why the last bits of results depend on the order of programs; empty if they do not."""
        update = self.specialization.find_order_dependence(self.config_spec.normalize(config))
        return "" if update is None else str(update)

    def to_triton_code(
        self, config: ConfigLike = None, *, target: str | Target | None = None, **_: Any
    ) -> str:
        """The Triton module for a config, with or without a GPU.

        ``target``: ``cuda:NN`` or ``hip:gfxNNN``; by default the bound device, else cuda:90.
        """
        return triton_module(self, config, target)

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
        backends = self.definition.backends
        form = check_form(form, backends.forms) or backends.of(resolved).forms[0]
        if form == "triton":
            return self.to_triton_code(config, target=target, **options)
        # Native code of a kernel for another device is shown as this machine would run it.
        shown = resolved if form in backends.of(resolved).forms else host_target()
        return show_form(self.to_artifact(config, target=shown), form)

    def to_artifact(
        self, config: ConfigLike = None, *, target: str | Target | None = None
    ) -> Artifact:
        """What the launcher gets for a config: source and launch contract."""
        resolved = _any_target(target, self.target)
        return self.specialization.artifact(_resolve(self, config, resolved), resolved)

    def capture_launch(self, args: tuple[Any, ...], config: ConfigLike = None) -> CapturedLaunch:
        """What host code hands over at the launch point under a config; nothing is launched."""
        normal = self.config_spec.normalize(_resolve(self, config, self.target))
        return self._executables.capture(normal, self.definition.with_defaults(args))

    def compile_config(
        self, config: ConfigLike = None, *, allow_print: bool = True
    ) -> Callable[..., Any]:
        """The kernel with a config fixed, as a plain function of the arguments."""
        executable = self._executable(_resolve(self, config, self.target))
        return lambda *args: executable.call(*self.definition.with_defaults(args))

    def set_config(self, config: ConfigLike) -> None:
        """Use this config from now on."""
        chosen = _resolve(self, config, self.target)
        self._activate(self._executable(chosen))
        self.chosen = chosen

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
            if config is None or not is_default or runner is CHECKED:
                self._activate(self._executable(config))
                return
            # Nobody asked for the default: where it does not build, another will do.
            executable = Executable(config, runner, self.config_spec.fallback_configs)
            self._executables.prepare(executable)
            self._activate(executable)

    def _activate(self, executable: Executable) -> None:
        self._active, self.call = executable, executable.call

    def _first_call(self, *args: Any) -> Any:
        self.ensure_config_exists(args)
        return self.call(*args)

    def __call__(self, *args: Any) -> Any:
        """Run with the installed config."""
        return self.call(*self.definition.with_defaults(args))

    def run_ref(self, *args: Any) -> Any:
        """Run with the reference interpreter, whatever the device."""
        reference = self._executables.get(None, REFERENCE)
        return reference.call(*self.definition.with_defaults(args))

    @property
    def _runner(self) -> Runner:
        return choose_runner(self.settings, self.target, self.definition.backends)

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


def _triton_target(target: Target, backends: BackendTable) -> Target:
    is_shown = "triton" in backends.of(target).forms
    return target if is_shown else parse_target(DEFAULT_GPU_TARGET)


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


def _first_config(bound: BoundKernel, runner: Runner) -> Config | None:
    """What suits the runner; None: whole tensors as tiles."""
    if runner is REFERENCE and not bound.configs:
        return None
    config = _resolve(bound, None, bound.target)
    if runner is not CHECKED or bound.configs:
        return config
    blocks = split_tile_sizes(bound.function, config.get("block_sizes", []))
    return config.updated(block_sizes=blocks)


def _resolve(bound: BoundKernel, config: ConfigLike, target: Target) -> Config:
    """The config given, chosen before, of the decorator, or the target's default."""
    if config is not None:
        return config if isinstance(config, Config) else Config.from_dict(config)
    if bound.chosen is not None:
        return bound.chosen
    return bound.configs[0] if bound.configs else bound.specialization.default_config(target)


def triton_module(
    bound: BoundKernel,
    config: ConfigLike,
    target: str | Target | None,
    variant: Variant | None = None,
) -> str:
    """The Triton module of a trace, by default of the newest that fits the config."""
    gpu = _triton_target(_any_target(target, bound.target), bound.definition.backends)
    return bound.specialization.module(_resolve(bound, config, gpu), gpu, variant)


def show_form(artifact: Artifact, form: str) -> str:
    """The code of an artifact in one of the forms of its backend."""
    if form == "llvm":
        return artifact.llvm
    if form == "assembly":
        return code_maker(artifact.target).make_assembly(artifact.llvm)
    return artifact.readable


def check_form(form: str, known: Sequence[str]) -> str:
    """The form by its full name; raises unless it is empty or one of the known ones."""
    full = _ALIASES.get(form, form)
    if full and full not in known:
        raise errors.InvalidArgumentValue(
            function="to_code", problem=f"there is no form {form!r}", expected=", ".join(known)
        )
    return full
