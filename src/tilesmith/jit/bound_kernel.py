"""A kernel bound to one specialization.

Its traces, its Config specification, its compiled forms.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import torch

from tilesmith.artifacts import Artifact
from tilesmith.compiler.compile import compile_to_native, compile_to_triton
from tilesmith.compiler.module_source import HostMemo, with_host_function
from tilesmith.compiler.split_tiles import split_tile_sizes
from tilesmith.frontend.trace import TraceRequest
from tilesmith.ir.function import Function
from tilesmith.jit.code_forms import check_form, show_native
from tilesmith.jit.definition import KernelDefinition
from tilesmith.jit.executables import Executable, ExecutableStore
from tilesmith.jit.launchers import LauncherMaker
from tilesmith.jit.runners import Runner, choose_runner
from tilesmith.jit.specs import SpecStore
from tilesmith.jit.variants import Variant, VariantStore
from tilesmith.jit.written_arguments import writes_arguments
from tilesmith.runtime.device import resolve_target
from tilesmith.runtime.native.host_cpu import host_target
from tilesmith.schedule.config import Config
from tilesmith.schedule.spec import ConfigSpec
from tilesmith.settings import Settings
from tilesmith.targets import Target, parse_target

DEFAULT_GPU_TARGET = "cuda:90"
"""What Triton code is shown for when there is no GPU."""
ConfigLike = Config | Mapping[str, Any] | None


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
        request = TraceRequest(
            definition.split,
            arguments,
            definition.constant_positions(arguments),
            definition.trace_options,
            device,
            warnings=definition.warnings,
        )
        self._variants = VariantStore(request)
        self._specs = SpecStore(allow_warp_specialize=self.settings.allow_warp_specialize)
        launchers = LauncherMaker(definition, self._specs, target, device)
        self._executables = ExecutableStore(definition, self._variants, launchers, device)
        self._chosen: Config | None = None
        """What ``set_config`` was given."""
        self._active: Executable | None = None
        self._host_parts: HostMemo = {}
        self._lock = threading.RLock()

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

    def default_config(self) -> Config:
        """A sensible config, without any search."""
        return self.config_spec.default_config()

    def specialized_values(self) -> list[Callable[..., int]]:
        """How to get the values that host code turned into constants from the arguments."""
        return [origin for origin, _ in self._variants.default.trace.session.specialized]

    def writes_arguments(self) -> bool:
        """Whether the kernel stores into memory that the caller passed in."""
        return writes_arguments(self.function, self.definition.parameters)

    def to_triton_code(
        self, config: ConfigLike = None, *, target: str | Target | None = None, **_: Any
    ) -> str:
        """The Triton module for a config, with or without a GPU.

        ``target`` is any of ``cuda:NN`` or ``hip:gfxNNN``; by default the bound device, else
        cuda:90.
        """
        gpu = self._gpu_target(target)
        resolved = self._resolve(config, gpu)
        variant, artifact = self._compile(resolved, gpu)
        return with_host_function(
            artifact, self.definition.split, variant.trace, resolved, self._host_parts
        )

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
        resolved = self._any_target(target)
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
        resolved = self._any_target(target)
        return self._compile(self._resolve(config, resolved), resolved)[1]

    def compile_config(
        self, config: ConfigLike = None, *, allow_print: bool = True
    ) -> Callable[..., Any]:
        """The kernel with a config fixed, as a plain function of the arguments."""
        executable = self._executable(self._resolve(config, self.target))
        return lambda *args: self._run(executable, args)

    def set_config(self, config: ConfigLike) -> None:
        """Use this config from now on."""
        chosen = self._resolve(config, self.target)
        self._active = self._executable(chosen)
        self._chosen = chosen

    def ensure_config_exists(self, args: tuple[Any, ...]) -> None:
        """Choose a config if none is installed: the decorator's, else the default."""
        with self._lock:
            if self._active is None:
                self._active = self._executable(self._first_config())

    def __call__(self, *args: Any) -> Any:
        """Run with the installed config."""
        return self.run(self.definition.with_defaults(args))

    def run(self, args: tuple[Any, ...]) -> Any:
        """Run with the installed config and all arguments, none left to their defaults."""
        active = self._active
        if active is None:
            self.ensure_config_exists(args)
            return self.run(args)
        return self._executables.run(active, args)

    def run_ref(self, *args: Any) -> Any:
        """Run with the reference interpreter, whatever the device."""
        return self._run(self._executables.get(None, Runner.REFERENCE), args)

    @property
    def _runner(self) -> Runner:
        return choose_runner(self.settings, self.target)

    def _any_target(self, target: str | Target | None) -> Target:
        return self.target if target is None else resolve_target(target)

    def _gpu_target(self, target: str | Target | None) -> Target:
        resolved = self._any_target(target)
        return resolved if resolved.is_gpu else parse_target(DEFAULT_GPU_TARGET)

    def _resolve(self, config: ConfigLike, target: Target) -> Config:
        """The config given, chosen before, of the decorator, or the target's default."""
        if config is not None:
            return config if isinstance(config, Config) else Config.from_dict(config)
        if self._chosen is not None:
            return self._chosen
        if self.configs:
            return self.configs[0]
        return self._specs.get(self._variants.default, target).default_config()

    def _first_config(self) -> Config | None:
        """The decorator's config, else what suits the runner; None: whole tensors as tiles."""
        if self._runner is Runner.REFERENCE and not self.configs:
            return None
        config = self._resolve(None, self.target)
        if self._runner is not Runner.CHECKED or self.configs:
            return config
        blocks = split_tile_sizes(self.function, config.get("block_sizes", []))
        return config.updated(block_sizes=blocks)

    def _compile(self, config: Config, target: Target) -> tuple[Variant, Artifact]:
        normal = self._specs.get(self._variants.default, target).normalize(config)
        variant = self._variants.find(normal)
        spec = self._specs.get(variant, target)
        if variant is not self._variants.default:
            normal = spec.normalize(config)
        compile_config = compile_to_triton if target.is_gpu else compile_to_native
        return variant, compile_config(spec, normal, self.settings)

    def _executable(self, config: Config | None) -> Executable:
        if config is not None:
            config = self.config_spec.normalize(config)
        return self._executables.get(config, self._runner)

    def _run(self, executable: Executable, args: tuple[Any, ...]) -> Any:
        return self._executables.run(executable, self.definition.with_defaults(args))
