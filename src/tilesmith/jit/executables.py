"""Compiled forms of one specialization: for each config the launchers of the traces seen so far."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tilesmith.compiler.whole_tiles import whole_tile_sizes
from tilesmith.diagnostics import errors
from tilesmith.frontend.trace import HostReturnedError, same_random_numbers
from tilesmith.frontend.tracing.host_run import HostWatch, copy_if_changed, may_compute
from tilesmith.frontend.tracing.host_session import HostSession
from tilesmith.frontend.tracing.tracer import running_host
from tilesmith.jit.definition import KernelDefinition
from tilesmith.jit.fallback import Fallback
from tilesmith.jit.launch_capture import CapturedLaunch, LaunchReached, make_stop
from tilesmith.jit.launchers import LauncherMaker
from tilesmith.jit.runners import Runner
from tilesmith.jit.variants import Variant, VariantStore
from tilesmith.runtime.arguments import Launcher, Recovery, compile_choice
from tilesmith.schedule.config import Config

MAX_NEW_TRACES = 3
"""How often one call may be traced anew because host code computes something else each time."""


class _GuardFailedError(Exception):
    """Host code computed something else than when it was traced."""

    def __init__(self, captured: tuple[Any, ...]) -> None:
        super().__init__()
        self.captured = captured


class Executable:
    """One config ready to run."""

    def __init__(
        self,
        config: Config,
        runner: Runner,
        alternatives: Callable[[], Sequence[Config]] | None = None,
    ) -> None:
        self.config = config
        self.runner = runner
        self.alternatives = alternatives
        """To be taken, in this order, where the config does not build."""
        self.blocks = dict(enumerate(config.get("block_sizes", [])))
        self.launch: Launcher = _fail
        """The launch point of host code: runs the newest launcher whose trace fits."""
        self.call: Callable[..., Any] = _fail
        """Runs host code with all arguments, and with ``launch`` at its launch point."""


def _fail(*values: Any) -> None:
    raise _GuardFailedError(values)


class ExecutableStore:
    """Makes and runs executables of one specialization."""

    def __init__(
        self,
        definition: KernelDefinition,
        variants: VariantStore,
        launchers: LauncherMaker,
        device: torch.device,
    ) -> None:
        self._definition = definition
        self._variants = variants
        self._launchers = launchers
        self._host = definition.split.host_function()
        self._session = variants.default.trace.session
        self._needs_session = self._session.is_used
        self._known: dict[tuple[Config | None, Runner], Executable] = {}
        self._device = device
        self._is_watched = not may_compute(definition.split.source.after)
        """Whether the torch calls after the loops have been looked at, in a first run."""

    def get(self, config: Config | None, runner: Runner) -> Executable:
        """The executable of a config (None: tensors as whole tiles), made on first use."""
        known = self._known.get((config, runner))
        if known is None:
            known = Executable(config or self._whole_config(), runner)
            self._add_launcher(known, self._variants.find(known.config))
            self._known[(config, runner)] = known
        return known

    def first_of(
        self, config: Config, alternatives: Callable[[], Sequence[Config]], runner: Runner
    ) -> Executable:
        """The executable of a config; where it does not build, the first alternative that does."""
        executable = Executable(config, runner, alternatives)
        self._add_launcher(executable, self._variants.find(executable.config))
        return executable

    def _make_call(self, executable: Executable) -> Callable[..., Any]:
        host = self._host

        def call(*args: Any) -> Any:
            try:
                return host(executable.launch, *args)
            except _GuardFailedError as failed:
                captured = failed.captured
            return self._run_traced_anew(executable, args, captured, MAX_NEW_TRACES)

        def call_in_session(*args: Any) -> Any:
            try:
                return self._run_with_session(executable, args)
            except _GuardFailedError as failed:
                captured = failed.captured
            return self._run_traced_anew(executable, args, captured, MAX_NEW_TRACES)

        chosen = call_in_session if self._needs_session else call
        return chosen if self._is_watched else self._watched(chosen)

    def _watched(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def call_watched(*args: Any) -> Any:
            if self._is_watched:
                return call(*args)
            self._is_watched = True
            with HostWatch(self._definition.warnings, self._host.__code__, self._device):
                return call(*args)

        return call_watched

    def capture(self, config: Config, args: tuple[Any, ...]) -> CapturedLaunch:
        """What host code hands over under a config; nothing is launched, no argument changed."""
        for _ in range(MAX_NEW_TRACES + 1):
            captured = self._capture_once(config, args)
            if captured.fits_variant:
                return captured
            self._variants.note_changes(captured.values)
            self._variants.trace_for(config, args)
        raise self._unsteady()

    def _capture_once(self, config: Config, args: tuple[Any, ...]) -> CapturedLaunch:
        split = self._definition.split
        arguments = copy_if_changed(split.source, args)
        stop = make_stop(self._device)
        blocks = dict(enumerate(config.get("block_sizes", [])))
        try:
            with same_random_numbers():
                self._run_host(stop, arguments, config, blocks)
        except LaunchReached as reached:
            variant = self._variants.find(config)
            return CapturedLaunch(variant, split.captured, reached.values, arguments, self._device)
        raise HostReturnedError

    def _run_traced_anew(
        self, executable: Executable, args: tuple[Any, ...], captured: tuple[Any, ...], left: int
    ) -> Any:
        """Run again with a trace of what host code computes this time; it may change once more."""
        if not left:
            raise self._unsteady()
        self._variants.note_changes(captured)
        self._add_launcher(executable, self._variants.trace_for(executable.config, args))
        try:
            return self._run_with_session(executable, args)
        except _GuardFailedError as failed:
            captured = failed.captured
        return self._run_traced_anew(executable, args, captured, left - 1)

    def _unsteady(self) -> errors.BaseError:
        return errors.InternalError(
            problem=f"host code of `{self._definition.name}` computes other values at every "
            "run, and device code needs them as constants"
        )

    def _run_with_session(self, executable: Executable, args: tuple[Any, ...]) -> Any:
        return self._run_host(executable.launch, args, executable.config, executable.blocks)

    def _run_host(
        self, launch: Launcher, args: tuple[Any, ...], config: Config, blocks: dict[int, int]
    ) -> Any:
        fragments = self._session.tunable_fragments
        tunables = {name: config[name] for name in fragments if name in config}
        with running_host(HostSession(blocks, tunables)):
            return self._host(launch, *args)

    def _add_launcher(self, executable: Executable, variant: Variant) -> None:
        launcher, recover = self._make_launcher(executable, variant)
        executable.call = self._make_call(executable)
        executable.launch = compile_choice(
            self._definition.split.captured,
            variant.trace.guards,
            variant.trace.constants,
            launcher,
            executable.launch,
            recover,
        )
        executable.launch.device = self._device  # type: ignore[attr-defined]

    def _make_launcher(
        self, executable: Executable, variant: Variant
    ) -> tuple[Launcher, Recovery | None]:
        def make(config: Config) -> Launcher:
            return self._launchers.make(executable.runner, variant, config)

        find_others = executable.alternatives
        if find_others is None:
            return make(executable.config), None
        fallback = Fallback(
            executable.config,
            lambda: filter(variant.fits, find_others()),
            make,
            self._definition.warnings,
        )
        # Native code was built when its launcher was made: nothing is left to fall back from.
        recover = fallback.replace if executable.runner is Runner.TRITON else None
        return fallback.current, recover

    def _whole_config(self) -> Config:
        function = self._variants.default.function
        sizes = whole_tile_sizes(function)
        slots = {b.slot: sizes[b.name] for b in function.blocks if b.slot is not None}
        count = max(slots, default=-1) + 1
        return Config(block_sizes=[slots.get(slot, 1) for slot in range(count)])
