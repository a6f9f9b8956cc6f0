"""A kernel compiled for one specialization, as text: code, artifacts and facts under a config."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from tilesmith.artifacts import Artifact, module_path
from tilesmith.compiler.specialization import Specialization, Variant
from tilesmith.ir.function import Function
from tilesmith.jit.definition import KernelDefinition
from tilesmith.jit.output import code
from tilesmith.runtime.device import resolve_target
from tilesmith.runtime.native.host_cpu import host_target
from tilesmith.schedule.config import Config
from tilesmith.schedule.facts.fact_set import Facts
from tilesmith.schedule.spec import ConfigSpec
from tilesmith.settings import Settings
from tilesmith.targets import Target, parse_target

ConfigLike = Config | Mapping[str, Any] | None


class CompiledKernel:
    """What can be read of a bound kernel, without running it."""

    def __init__(
        self,
        definition: KernelDefinition,
        specialization: Specialization,
        target: Target,
        device: torch.device,
    ) -> None:
        self.definition = definition
        self.specialization = specialization
        """What is compiled, for any target."""
        self.target, self.device = target, device
        self.chosen: Config | None = None
        """What ``set_config`` was given or a tuner has found."""

    @property
    def settings(self) -> Settings:
        """The kernel's settings."""
        return self.definition.settings

    @property
    def configs(self) -> list[Config]:
        """Configs given with the decorator."""
        return self.definition.configs

    @property
    def env(self) -> CompiledKernel:
        """What it was compiled for (``device``, ``settings``, ``config_spec``): itself knows."""
        return self

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
        self,
        config: ConfigLike = None,
        *,
        target: str | Target | None = None,
        emit_repro_caller: bool = False,
        output_origin_lines: bool | None = None,
    ) -> str:
        """The Triton module for a config, with or without a GPU.

        ``target``: ``cuda:NN`` or ``hip:gfxNNN``; by default the bound device, else cuda:90.
        ``emit_repro_caller``: whether the module can be run, and then calls its kernel.
        """
        text = triton_module(self._shown(output_origin_lines=output_origin_lines), config, target)
        return self._with_caller(text) if emit_repro_caller else text

    def _with_caller(self, text: str) -> str:
        """The module with a call of its kernel."""
        raise NotImplementedError

    def _shown(self, *, output_origin_lines: bool | None = None) -> CompiledKernel:
        """The same; its code names the lines that it comes from, if asked or set."""
        if output_origin_lines in (None, self.settings.output_origin_lines):
            return self
        made = self.specialization.with_settings(output_origin_lines=output_origin_lines)
        shown = CompiledKernel(self.definition, made, self.target, self.device)
        shown.chosen = self.chosen
        return shown

    def to_code(
        self,
        config: ConfigLike = None,
        *,
        form: str = "",
        target: str | Target | None = None,
        options: code.OutputCodeOptions | None = None,
        **shown: Any,
    ) -> Any:
        """The generated code: Triton source on a GPU, the loop nest on a CPU.

        ``form`` asks for ``triton``, ``ttir``, ``ttgir``, ``llir``, ``ptx`` or ``amdgcn`` of a GPU,
        for ``loops``, ``llvm`` or ``asm`` of a CPU, as text; for ``cubin``, ``hsaco`` or ``object``
        as bytes. What is ``shown`` are the other options of ``to_triton_code``.
        """
        if options is not None:
            options.check()
        resolved = _any_target(target, self.target)
        backends = self.definition.backends
        form = code.check_form(form, backends.forms) or backends.of(resolved).forms[0]
        if form == "triton":
            return self.to_triton_code(config, target=target, **shown)
        # Code for another device: a GPU that is usual, or the CPU of this machine.
        is_here = form in backends.of(resolved).forms
        place = resolved if is_here else code.usual_target(form) or host_target()
        artifact = self._shown(**shown).to_artifact(config, target=place)
        return code.show_form(artifact, form, self.specialization.default.trace.observed)

    def to_artifact(
        self, config: ConfigLike = None, *, target: str | Target | None = None
    ) -> Artifact:
        """What the launcher gets for a config: source and launch contract."""
        resolved = _any_target(target, self.target)
        return self.specialization.artifact(self.resolve(config, resolved), resolved)

    def format_kernel_decorator(self, config: Config, settings: Settings) -> str:
        """The decorator line with this config and what settings say about shapes."""
        return code.decorator_line(config, settings)

    def get_cached_path(self, config: ConfigLike = None) -> str | None:
        """The file of the Triton module of a config; None where nothing was written."""
        if "triton" not in self.definition.backends.of(self.target).forms:
            return None
        path = module_path(self.to_artifact(config), Path(self.settings.cache_dir))
        return str(path) if path.exists() else None

    def resolve(self, config: ConfigLike, target: Target | None = None) -> Config:
        """The config given, chosen before, of the decorator, or the target's default."""
        if config is not None:
            return config if isinstance(config, Config) else Config.from_dict(config)
        if self.chosen is not None:
            return self.chosen
        default = self.specialization.default_config
        return self.configs[0] if self.configs else default(target or self.target)


def _any_target(target: str | Target | None, default: Target) -> Target:
    return default if target is None else resolve_target(target)


def triton_module(
    compiled: CompiledKernel,
    config: ConfigLike,
    target: str | Target | None,
    variant: Variant | None = None,
) -> str:
    """The Triton module of a trace, by default of the newest that fits the config."""
    gpu = _any_target(target, compiled.target)
    if "triton" not in compiled.definition.backends.of(gpu).forms:
        gpu = parse_target(code.DEFAULT_GPU_TARGET)
    return compiled.specialization.module(compiled.resolve(config, gpu), gpu, variant)
