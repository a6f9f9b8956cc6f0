"""A kernel bound to one specialization.

Its traces, its Config specification, its compiled forms.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import torch

from tilesmith.analysis.effects import tensors_written
from tilesmith.artifacts import Artifact
from tilesmith.compiler.compile import compile_to_triton
from tilesmith.compiler.module_source import HostMemo, with_host_function
from tilesmith.ir.function import Function
from tilesmith.ir.types import TensorType
from tilesmith.jit.definition import KernelDefinition
from tilesmith.jit.executables import Executable, ExecutableStore
from tilesmith.jit.specs import SpecStore
from tilesmith.jit.variants import Variant, VariantStore
from tilesmith.schedule.config import Config
from tilesmith.schedule.spec import ConfigSpec
from tilesmith.settings import RefMode, Settings
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
        self._variants = VariantStore(
            definition.split,
            arguments,
            definition.constant_positions(arguments),
            definition.trace_options,
        )
        self._specs = SpecStore(allow_warp_specialize=self.settings.allow_warp_specialize)
        self._executables = ExecutableStore(definition, self._variants, self._specs, device)
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
        return self._specs.get(self._variants.default, self._gpu_target(None))

    def default_config(self) -> Config:
        """A sensible config, without any search."""
        return self.config_spec.default_config()

    def specialized_values(self) -> list[Callable[..., int]]:
        """How to get the values that host code turned into constants from the arguments."""
        return [origin for origin, _ in self._variants.default.trace.session.specialized]

    def writes_arguments(self) -> bool:
        """Whether the kernel stores into memory that the caller passed in."""
        names = set(self.definition.parameters)
        tensors = {
            p.value.name: p
            for p in self.function.parameters
            if isinstance(p.value.type, TensorType)
        }
        passed = {
            p.value.tensor.alias
            for p in tensors.values()
            if p.source.replace("[", ".").partition(".")[0] in names
        }
        written = [tensors[name] for name in tensors_written(self.function)]
        return any(p.value.tensor.alias in passed for p in written)

    def to_triton_code(
        self, config: ConfigLike = None, *, target: str | Target | None = None, **_: Any
    ) -> str:
        """The Triton module for a config, with or without a GPU.

        ``target`` is any of ``cuda:NN`` or ``hip:gfxNNN``; by default the bound device, else
        cuda:90.
        """
        resolved = self._resolve(config)
        variant, artifact = self._compile(resolved, self._gpu_target(target))
        return with_host_function(
            artifact, self.definition.split, variant.trace, resolved, self._host_parts
        )

    def to_code(self, config: ConfigLike = None, **options: Any) -> str:
        """The generated code: Triton source."""
        return self.to_triton_code(config, **options)

    def to_artifact(
        self, config: ConfigLike = None, *, target: str | Target | None = None
    ) -> Artifact:
        """What the launcher gets for a config: source and launch contract."""
        return self._compile(self._resolve(config), self._gpu_target(target))[1]

    def compile_config(
        self, config: ConfigLike = None, *, allow_print: bool = True
    ) -> Callable[..., Any]:
        """The kernel with a config fixed, as a plain function of the arguments."""
        executable = self._executable(self._resolve(config))
        return lambda *args: self._run(executable, args)

    def set_config(self, config: ConfigLike) -> None:
        """Use this config from now on."""
        self._active = self._executable(self._resolve(config))

    def ensure_config_exists(self, args: tuple[Any, ...]) -> None:
        """Choose a config if none is installed: the decorator's, else the default."""
        with self._lock:
            if self._active is None:
                has_default = self.configs or not self._is_reference
                self._active = self._executable(self._resolve(None) if has_default else None)

    def __call__(self, *args: Any) -> Any:
        """Run with the installed config."""
        if self._active is None:
            self.ensure_config_exists(args)
        assert self._active is not None
        return self._run(self._active, args)

    def run_ref(self, *args: Any) -> Any:
        """Run with the reference interpreter, whatever the device."""
        return self._run(self._executables.get(None, self.target, is_reference=True), args)

    @property
    def _is_reference(self) -> bool:
        is_asked = self.settings.backend == "reference" or self.settings.ref_mode is RefMode.EAGER
        return is_asked or not self.target.is_gpu

    def _gpu_target(self, target: str | Target | None) -> Target:
        if isinstance(target, str):
            return parse_target(target)
        if target is not None:
            return target
        return self.target if self.target.is_gpu else parse_target(DEFAULT_GPU_TARGET)

    def _resolve(self, config: ConfigLike) -> Config:
        if config is not None:
            return config if isinstance(config, Config) else Config.from_dict(config)
        if self._active is not None and self._active.config is not None:
            return self._active.config
        return self.configs[0] if self.configs else self.default_config()

    def _compile(self, config: Config, target: Target) -> tuple[Variant, Artifact]:
        normal = self._specs.get(self._variants.default, target).normalize(config)
        variant = self._variants.find(normal)
        spec = self._specs.get(variant, target)
        if variant is not self._variants.default:
            normal = spec.normalize(config)
        return variant, compile_to_triton(spec, normal, self.settings)

    def _executable(self, config: Config | None) -> Executable:
        if config is not None:
            config = self.config_spec.normalize(config)
        return self._executables.get(config, self.target, is_reference=self._is_reference)

    def _run(self, executable: Executable, args: tuple[Any, ...]) -> Any:
        return self._executables.run(executable, self.target, self.definition.with_defaults(args))
