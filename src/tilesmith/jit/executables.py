"""Compiled forms of one specialization: for each config the launchers of the traces seen so far."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from tilesmith.compiler.compile import compile_to_triton
from tilesmith.compiler.whole_tiles import whole_tile_sizes
from tilesmith.diagnostics import errors
from tilesmith.frontend.host_session import HostSession
from tilesmith.frontend.sessions import running_host
from tilesmith.jit.definition import KernelDefinition
from tilesmith.jit.specs import SpecStore
from tilesmith.jit.variants import Variant, VariantStore
from tilesmith.runtime.launchers.reference import reference_launcher
from tilesmith.runtime.launchers.triton import TritonLauncher
from tilesmith.schedule.config import Config
from tilesmith.targets import Target

MAX_NEW_TRACES = 3
"""How often one call may be traced anew because host code computes something else each time."""


class _GuardFailedError(Exception):
    """Host code computed something else than when it was traced."""

    def __init__(self, captured: tuple[Any, ...]) -> None:
        super().__init__()
        self.captured = captured


@dataclass
class Executable:
    """One config ready to run. ``config`` None stands for whole tiles on the interpreter."""

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
        raise _GuardFailedError(values)


class ExecutableStore:
    """Makes and runs executables of one specialization."""

    def __init__(
        self,
        definition: KernelDefinition,
        variants: VariantStore,
        specs: SpecStore,
        device: torch.device,
    ) -> None:
        self._definition = definition
        self._variants = variants
        self._specs = specs
        self._device = device
        self._host = definition.split.host_function()
        self._known: dict[tuple[Config | None, bool], Executable] = {}

    def get(self, config: Config | None, target: Target, *, is_reference: bool) -> Executable:
        """The executable of a config, made on first use."""
        known = self._known.get((config, is_reference))
        if known is None:
            known = Executable(config, is_reference)
            self._add_launcher(known, target, None)
            self._known[(config, is_reference)] = known
        return known

    def run(self, executable: Executable, target: Target, args: tuple[Any, ...]) -> Any:
        """Run host code with the executable at its launch point."""
        return self._run_traced(executable, target, args, MAX_NEW_TRACES)

    def _run_traced(
        self, executable: Executable, target: Target, args: tuple[Any, ...], attempts: int
    ) -> Any:
        try:
            return self._run_host(executable, args)
        except _GuardFailedError as failed:
            captured = failed.captured
        if not attempts:
            raise errors.InternalError(
                problem=f"host code of `{self._definition.name}` computes other values at every "
                "run, and device code needs them as constants"
            )
        self._variants.note_changes(captured)
        self._add_launcher(executable, target, args)
        return self._run_traced(executable, target, args, attempts - 1)

    def _run_host(self, executable: Executable, args: tuple[Any, ...]) -> Any:
        traced = self._variants.default.trace.session
        if not traced.is_used:
            return self._host(executable.launch, *args)
        config = executable.config or self._whole_config()
        blocks = dict(enumerate(config.get("block_sizes", [])))
        tunables = {name: config[name] for name in traced.tunable_fragments if name in config}
        with running_host(HostSession(blocks, tunables)):
            return self._host(executable.launch, *args)

    def _add_launcher(
        self, executable: Executable, target: Target, arguments: tuple[Any, ...] | None
    ) -> None:
        """Make the launcher for the trace that fits these arguments (None: the ones bound with)."""
        config = executable.config or self._whole_config()
        if arguments is None:
            variant = self._variants.find(config)
        else:
            variant = self._variants.trace_for(config, arguments)
        make = self._reference_launcher if executable.is_reference else self._triton_launcher
        executable.launchers.insert(0, (variant.guard, make(variant, config, target)))

    def _whole_config(self) -> Config:
        function = self._variants.default.function
        sizes = whole_tile_sizes(function)
        slots = {b.slot: sizes[b.name] for b in function.blocks if b.slot is not None}
        count = max(slots, default=-1) + 1
        return Config(block_sizes=[slots.get(slot, 1) for slot in range(count)])

    def _reference_launcher(
        self, variant: Variant, config: Config, target: Target
    ) -> Callable[..., None]:
        blocks = config.get("block_sizes", [])
        sizes = whole_tile_sizes(variant.function)
        for block in variant.function.blocks:
            if block.slot is not None and block.slot < len(blocks):
                sizes[block.name] = blocks[block.slot]
        return reference_launcher(
            variant.function, sizes, self._definition.split.captured, variant.trace.constants
        )

    def _triton_launcher(
        self, variant: Variant, config: Config, target: Target
    ) -> Callable[..., None]:
        settings = self._definition.settings
        spec = self._specs.get(variant, target)
        plain = config.updated(indexing="pointer", atomic_indexing="pointer")
        launcher = TritonLauncher(
            compile_to_triton(spec, spec.normalize(config), settings),
            self._definition.split.captured,
            variant.trace.constants,
            self._device,
            Path(settings.cache_dir),
            lambda: self._triton_launcher(variant, plain, target),
        )
        if settings.print_output_code:
            # A launcher is made once per config and trace, so the code is shown once.
            sys.stderr.write(f"# {launcher.path}\n{launcher.artifact.source}\n")
        return launcher
