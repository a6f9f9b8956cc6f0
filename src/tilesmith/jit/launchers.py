"""Launchers of one specialization: a trace under a config, ready to run on captured values."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import torch

from tilesmith.compiler.compile import compile_to_native, compile_to_triton
from tilesmith.compiler.whole_tiles import whole_tile_sizes
from tilesmith.diagnostics import errors
from tilesmith.jit.definition import KernelDefinition
from tilesmith.jit.determinism import check_deterministic
from tilesmith.jit.runners import COMPILING, Runner
from tilesmith.jit.specs import SpecStore
from tilesmith.jit.variants import Variant
from tilesmith.runtime.arguments import Launcher
from tilesmith.runtime.launchers.cpu import NativeOptions, native_launcher
from tilesmith.runtime.launchers.gpu_call import GpuOptions
from tilesmith.runtime.launchers.reference import reference_launcher
from tilesmith.runtime.launchers.triton import TritonLauncher
from tilesmith.schedule.config import Config
from tilesmith.targets import Target


class LauncherMaker:
    """Makes launchers for one specialization."""

    def __init__(
        self, definition: KernelDefinition, specs: SpecStore, target: Target, device: torch.device
    ) -> None:
        self._definition = definition
        self._specs = specs
        self._target = target
        self._device = device

    def make(self, runner: Runner, variant: Variant, config: Config) -> Launcher:
        """The launcher of a trace under a config."""
        if runner in COMPILING:
            check_deterministic(variant.function, config, self._definition.settings)
        if runner is Runner.TRITON:
            return self._triton(variant, config)
        if runner is Runner.NATIVE:
            return self._native(variant, config)
        return self._reference(variant, config, is_checked=runner is Runner.CHECKED)

    def _reference(self, variant: Variant, config: Config, *, is_checked: bool) -> Launcher:
        blocks = config.get("block_sizes", [])
        sizes = whole_tile_sizes(variant.function)
        for block in variant.function.blocks:
            if block.slot is not None and block.slot < len(blocks):
                sizes[block.name] = blocks[block.slot]
        return reference_launcher(
            variant.function,
            sizes,
            self._definition.split.captured,
            variant.trace.constants,
            races=is_checked,
        )

    def _native(self, variant: Variant, config: Config) -> Launcher:
        if self._device.type != "cpu":
            raise errors.BackendUnsupported(
                operation=f"running on tensors of device {self._device}", backend="cpu"
            )
        settings = self._definition.settings
        spec = self._specs.get(variant, self._target)
        artifact = compile_to_native(spec, spec.normalize(config), settings)
        options = NativeOptions(
            Path(settings.cache_dir),
            settings.num_threads,
            self._arguments,
            self._definition.find_reader(),
        )
        self._show(lambda: artifact.readable)
        return native_launcher(
            artifact, self._definition.split.captured, variant.trace.constants, options
        )

    def _triton(self, variant: Variant, config: Config) -> Launcher:
        settings = self._definition.settings
        spec = self._specs.get(variant, self._target)
        plain = config.updated(indexing="pointer", atomic_indexing="pointer")
        launcher = TritonLauncher(
            compile_to_triton(spec, spec.normalize(config), settings),
            self._definition.split.captured,
            variant.trace.constants,
            GpuOptions(
                self._device,
                Path(settings.cache_dir),
                self._arguments,
                self._definition.find_reader(),
            ),
            lambda: self._triton(variant, plain),
        )
        self._show(lambda: f"# {launcher.path}\n{launcher.artifact.source}")
        return launcher.launch

    @property
    def _arguments(self) -> frozenset[str]:
        return frozenset(self._definition.parameters) & self._definition.split.keyed

    def _show(self, make_code: Callable[[], str]) -> None:
        """Print code if asked to; a launcher is made once per config and trace, so once."""
        if self._definition.settings.print_output_code:
            sys.stderr.write(f"{make_code()}\n")
