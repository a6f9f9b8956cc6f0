"""A kernel bound to one specialization: its traces, its Config specification, and its compiled forms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from tilesmith.analysis.effects import tensors_written
from tilesmith.artifacts import Artifact
from tilesmith.compiler.compile import compile_to_triton
from tilesmith.compiler.module_source import with_host_function
from tilesmith.compiler.whole_tiles import whole_tile_sizes
from tilesmith.frontend.host_session import HostSession
from tilesmith.frontend.sessions import running_host
from tilesmith.ir.types import TensorType
from tilesmith.jit.variants import Variant, VariantStore
from tilesmith.runtime.launchers.reference import reference_launcher
from tilesmith.runtime.launchers.triton import TritonLauncher
from tilesmith.schedule.config import Config
from tilesmith.schedule.spec import ConfigSpec
from tilesmith.settings import Settings
from tilesmith.targets import Target, parse_target

if TYPE_CHECKING:
    from tilesmith.jit.kernel import Kernel

DEFAULT_GPU_TARGET = "cuda:90"
"""What Triton code is shown for when there is no GPU."""


class _GuardFailed(Exception):
    """Host code computed something else than when it was traced."""


@dataclass
class _Compiled:
    """One config ready to run: launchers for the traces seen so far."""

    config: Config | None
    is_reference: bool
    launchers: list[tuple[Callable[..., bool] | None, Callable[..., None]]] = field(
        default_factory=list[tuple["Callable[..., bool] | None", "Callable[..., None]"]]
    )

    def launch(self, *values: Any) -> None:
        """The launch point of host code: run the launcher whose trace fits the captured values."""
        for guard, launcher in self.launchers:
            if guard is None or guard(*values):
                launcher(*values)
                return
        raise _GuardFailed


class BoundKernel:
    """A kernel with the types and shapes of its arguments known.

    Example:
        ``bound = kernel.bind((x, y)); print(bound.to_triton_code(bound.config_spec.default_config()))``
    """

    def __init__(
        self, kernel: Kernel, arguments: tuple[Any, ...], target: Target, device: torch.device
    ) -> None:
        self.kernel = kernel
        self.target = target
        self._device = device
        self._store = VariantStore(
            kernel.split, arguments, kernel.constant_positions(arguments), kernel.trace_options
        )
        self._host = kernel.split.host_function()
        self._specs: dict[tuple[int, str], ConfigSpec] = {}
        self._compiled: dict[Config | None, _Compiled] = {}
        self._active: _Compiled | None = None

    @property
    def settings(self) -> Settings:
        """The kernel's settings."""
        return self.kernel.settings

    @property
    def configs(self) -> list[Config]:
        """Configs given with the decorator."""
        return self.kernel.configs

    @property
    def function(self) -> Any:
        """The IR after the standard passes (of the first trace)."""
        return self._store.default.function

    @property
    def config_spec(self) -> ConfigSpec:
        """What a Config of this kernel may contain."""
        return self._spec(self._store.default, self._gpu_target())

    def specialized_values(self) -> list[tuple[Callable[..., int], int]]:
        """Runtime values that host code turned into constants, and how to get them from arguments."""
        return self._store.default.trace.session.specialized

    def writes_arguments(self) -> bool:
        """Whether the kernel stores into memory that the caller passed in."""
        function = self._store.default.function
        names = set(self.kernel.signature.parameters)
        roots = {p.value.name: p.source.partition(".")[0].partition("[")[0] for p in function.parameters}
        groups = {
            p.value.tensor.alias
            for p in function.parameters
            if isinstance(p.value.type, TensorType) and roots[p.value.name] in names
        }
        written = set(tensors_written(function))
        return any(
            p.value.tensor.alias in groups for p in function.parameters if p.value.name in written
        )

    def _gpu_target(self, target: str | Target | None = None) -> Target:
        if isinstance(target, str):
            return parse_target(target)
        if target is not None:
            return target
        return self.target if self.target.is_gpu else parse_target(DEFAULT_GPU_TARGET)

    def _spec(self, variant: Variant, target: Target) -> ConfigSpec:
        key = (id(variant), str(target))
        if key not in self._specs:
            self._specs[key] = ConfigSpec(
                variant.function,
                target,
                variant.trace.session.tunable_fragments,
                allow_warp_specialize=self.settings.allow_warp_specialize,
            )
        return self._specs[key]

    def default_config(self) -> Config:
        """A sensible config, without any search."""
        return self.config_spec.default_config()

    def _resolve(self, config: Config | Mapping[str, Any] | None) -> Config:
        if config is not None:
            return config if isinstance(config, Config) else Config.from_dict(config)
        if self._active is not None and self._active.config is not None:
            return self._active.config
        return self.configs[0] if self.configs else self.default_config()

    def _artifact(self, config: Config, target: Target) -> tuple[Variant, Artifact]:
        normal = self._spec(self._store.default, target).normalize(config)
        variant = self._store.find(normal)
        spec = self._spec(variant, target)
        return variant, compile_to_triton(spec, spec.normalize(config), self.settings)

    def to_triton_code(
        self,
        config: Config | Mapping[str, Any] | None = None,
        *,
        target: str | Target | None = None,
        **_: Any,
    ) -> str:
        """The Triton module for a config: works without a GPU, for any ``cuda:NN`` or ``hip:gfxNNN`` target."""
        resolved = self._resolve(config)
        variant, artifact = self._artifact(resolved, self._gpu_target(target))
        return with_host_function(artifact, self.kernel.split, variant.trace, resolved)

    def to_artifact(
        self,
        config: Config | Mapping[str, Any] | None = None,
        *,
        target: str | Target | None = None,
    ) -> Artifact:
        """What the launcher gets for a config: source and launch contract."""
        return self._artifact(self._resolve(config), self._gpu_target(target))[1]

    def to_code(self, config: Config | Mapping[str, Any] | None = None, **options: Any) -> str:
        """The generated code: Triton source."""
        return self.to_triton_code(config, **options)

    def compile_config(
        self, config: Config | Mapping[str, Any] | None = None, *, allow_print: bool = True
    ) -> Callable[..., Any]:
        """The kernel with a config fixed, as a plain function of the arguments."""
        compiled = self._compile(self._resolve(config))
        return lambda *args: self._run(compiled, self.kernel.with_defaults(args))

    def set_config(self, config: Config | Mapping[str, Any]) -> None:
        """Use this config from now on."""
        self._active = self._compile(self._resolve(config))

    def ensure_config_exists(self, args: tuple[Any, ...]) -> None:
        """Choose a config if none is installed: the decorator's, else the default."""
        if self._active is None:
            is_implicit = not self.configs and not self.target.is_gpu
            self._active = self._compile(None if is_implicit else self._resolve(None))

    def __call__(self, *args: Any) -> Any:
        """Run with the installed config."""
        if self._active is None:
            self.ensure_config_exists(args)
        assert self._active is not None
        return self._run(self._active, self.kernel.with_defaults(args))

    def run_ref(self, *args: Any) -> Any:
        """Run with the reference interpreter, whatever the device."""
        compiled = _Compiled(None, is_reference=True)
        self._add_launcher(compiled, None)
        return self._run(compiled, self.kernel.with_defaults(args))

    def _compile(self, config: Config | None) -> _Compiled:
        if config is not None:
            # A wrong config is an error everywhere, also where only its block sizes matter.
            normal = self.config_spec.normalize(config)
            config = normal if self.target.is_gpu else config
        compiled = self._compiled.get(config)
        if compiled is None:
            compiled = _Compiled(config, self._is_reference)
            self._add_launcher(compiled, None)
            self._compiled[config] = compiled
        return compiled

    @property
    def _is_reference(self) -> bool:
        return not self.target.is_gpu or self.settings.backend == "reference"

    def _add_launcher(self, compiled: _Compiled, arguments: tuple[Any, ...] | None) -> None:
        """Make the launcher of a config for the trace that fits these arguments."""
        config = compiled.config or Config(block_sizes=self._whole_blocks())
        if arguments is None:
            variant = self._store.find(config)
        else:
            variant = self._store.trace_for(config, arguments)
        if compiled.is_reference:
            launch = self._reference_launcher(variant, compiled.config)
        else:
            launch = self._triton_launcher(variant, config)
        compiled.launchers.insert(0, (variant.guard, launch))

    def _whole_blocks(self) -> list[int]:
        function = self._store.default.function
        sizes = whole_tile_sizes(function)
        slots = {
            block.slot: sizes[block.name] for block in function.blocks if block.slot is not None
        }
        count = max(slots, default=-1) + 1
        return [slots.get(slot, 1) for slot in range(count)]

    def _reference_launcher(self, variant: Variant, config: Config | None) -> Callable[..., None]:
        sizes = whole_tile_sizes(variant.function)
        blocks = (config or Config(block_sizes=self._whole_blocks())).get("block_sizes", [])
        for block in variant.function.blocks:
            if block.slot is not None and block.slot < len(blocks):
                sizes[block.name] = blocks[block.slot]
        trace = variant.trace
        return reference_launcher(
            variant.function, sizes, self.kernel.split.captured, trace.constants
        )

    def _triton_launcher(self, variant: Variant, config: Config) -> Callable[..., None]:
        spec = self._spec(variant, self.target)
        artifact = compile_to_triton(spec, spec.normalize(config), self.settings)
        return TritonLauncher(
            artifact,
            self.kernel.split.captured,
            variant.trace.constants,
            self._device,
            Path(self.settings.cache_dir),
        )

    def _run(self, compiled: _Compiled, args: tuple[Any, ...]) -> Any:
        try:
            return self._run_host(compiled, args)
        except _GuardFailed:
            self._add_launcher(compiled, args)
            return self._run_host(compiled, args)

    def _run_host(self, compiled: _Compiled, args: tuple[Any, ...]) -> Any:
        traced = self._store.default.trace.session
        if not traced.is_used:
            return self._host(compiled.launch, *args)
        config = compiled.config or Config(block_sizes=self._whole_blocks())
        with running_host(_session_for(config, traced)):
            return self._host(compiled.launch, *args)


def _session_for(config: Config, traced: HostSession) -> HostSession:
    blocks = dict(enumerate(config.get("block_sizes", [])))
    tunables = {name: config[name] for name in traced.tunable_fragments if name in config}
    return HostSession(blocks, tunables)
