"""What runs a bound kernel: for each config, host code with the launchers of its traces.

Host code can also be stopped at its launch point, and what it hands over there be kept: the tuner
builds and runs candidates in other processes, never in this one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import FunctionType
from typing import Any

import torch

import tilesmith.exc as errors
from tilesmith.compiler.interpreter_tiles import whole_tile_sizes
from tilesmith.compiler.specialization import Variant
from tilesmith.frontend.host_calls import trial_host
from tilesmith.frontend.trace import HostReturnedError, same_random_numbers
from tilesmith.frontend.tracing.host_run import (
    HostWatch,
    UnchangedTensors,
    copy_if_changed,
    may_compute,
)
from tilesmith.frontend.tracing.host_session import HostSession
from tilesmith.frontend.tracing.tracer import running_host
from tilesmith.jit.compiled_kernel import CompiledKernel
from tilesmith.jit.fallbacks import Fallback
from tilesmith.jit.fixed_host.calls import FixedCalls, recognised_call
from tilesmith.jit.runners import Runner
from tilesmith.runtime.arguments import Launcher, compile_choice, compile_guard, compile_reader
from tilesmith.schedule.config import Config

MAX_NEW_TRACES = 3
"""How often one call may be traced anew because host code computes something else each time."""
MAX_LAUNCHERS = 64
"""Of one executable, each a call deeper than the next: numbers of a module may change for ever."""


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
        self.num_launchers = 0
        self.launch: Launcher = _fail
        """The launch point of host code: runs the newest launcher whose trace fits."""
        self.call: Callable[..., Any] = _fail
        """Runs host code with all arguments, and with ``launch`` at its launch point."""
        self.recognised: Callable[..., Any] = _fail
        """The same for arguments that are known to have one form."""
        self.fixed_calls: FixedCalls | None = None
        """Makes these; None where host code is always run as it was written."""
        self.users: list[Callable[[Callable[..., Any]], None]] = []
        """Told of what takes the place of ``recognised``."""

    def settle(self, call: Callable[..., Any]) -> None:
        """Recognised calls go a shorter way from now on."""
        self.recognised = call
        for use in self.users:
            use(call)


def _fail(*values: Any) -> None:
    raise errors.InternalError(problem="an executable runs before it was prepared")


class Executables:
    """Makes and runs executables of one bound kernel."""

    def __init__(
        self, site: CompiledKernel, find_launcher: Callable[[Runner], Callable[..., Launcher]]
    ) -> None:
        definition = site.definition
        self._site, self._find_launcher = site, find_launcher
        self._definition = definition
        self._specialization = site.specialization
        self._host = definition.split.host_function()
        self._session = site.specialization.default.trace.session
        self._needs_session = self._session.is_used
        self._known: dict[tuple[Config | None, Runner], Executable] = {}
        self._device = site.device
        self._is_watched = not may_compute(definition.split.source.after)
        """Whether the torch calls after the loops have been looked at, in a first run."""

    def get(self, config: Config | None, runner: Runner) -> Executable:
        """The executable of a config (None: tensors as whole tiles), made on first use."""
        known = self._known.get((config, runner))
        if known is None:
            known = Executable(config or self._whole_config(), runner)
            self.prepare(known)
            self._known[(config, runner)] = known
        return known

    def _make_call(self, executable: Executable) -> Callable[..., Any]:
        call = self._host_call(executable)

        def call_watched(*args: Any) -> Any:
            if self._is_watched:
                return call(*args)
            self._is_watched = True
            host = self._specialization.calls.host_of(self._definition.split)
            with HostWatch(self._definition.warnings, host.__code__, self._device):
                return call(*args)

        return call if self._is_watched else call_watched

    def _host_call(self, executable: Executable) -> Callable[..., Any]:
        host = self._host

        def call(*args: Any) -> Any:
            return host(executable.launch, *args)

        registers = self._session.registered or self._session.tunable_fragments
        lasting = None if registers else HostSession(device=self._device)  # nothing stays in it

        def call_in_session(*args: Any) -> Any:
            with running_host(lasting or self._make_session(executable.config, executable.blocks)):
                return host(executable.launch, *args)

        chosen = call_in_session if self._needs_session else call
        continue_first = partial(self._continue_first, executable)
        return self._specialization.calls.continued(self._definition.split, chosen, continue_first)

    def _continue_first(
        self, executable: Executable, args: tuple[Any, ...], host: FunctionType
    ) -> Any:
        """The call for which a trace has run host code before."""
        launch = self._specialization.calls.around(executable.launch)
        launch.device = self._device  # type: ignore[attr-defined]
        with running_host(self._make_session(executable.config, executable.blocks)):
            return host(launch, *args)

    def wrapped(
        self, executable: Executable, wrap: Callable[[Launcher], Launcher]
    ) -> Callable[..., Any]:
        """Runs host code with something around the launcher at its launch point."""
        copy = Executable(executable.config, executable.runner)
        copy.launch = wrap(lambda *values: executable.launch(*values))  # noqa: PLW0108 - the newest
        copy.launch.device = self._device  # type: ignore[attr-defined]
        return self._host_call(copy)

    def capture(self, config: Config, args: tuple[Any, ...]) -> CapturedLaunch:
        """What host code hands over under a config; nothing is launched, no argument changed."""
        for attempt in range(MAX_NEW_TRACES + 1):
            is_whole = attempt == MAX_NEW_TRACES
            captured = self._capture_once(config, args, is_whole=is_whole)
            if captured.fits_variant:
                return captured
            changed = self._changed_numbers(captured.values)
            self._specialization.trace_anew(config, args, changed, is_whole=is_whole)
        raise self._unsteady()

    def _capture_once(
        self, config: Config, args: tuple[Any, ...], *, is_whole: bool
    ) -> CapturedLaunch:
        split = self._definition.split
        arguments = copy_if_changed(split.source, args, self._definition.host_objects(args))
        stop = make_stop(self._device)
        host = trial_host(split, arguments, is_whole=is_whole)
        own = () if arguments is args else arguments
        session = self._make_session(config, dict(enumerate(config.get("block_sizes", []))))
        try:
            with running_host(session), same_random_numbers(), UnchangedTensors(own):
                host(stop, *arguments)
        except LaunchReached as reached:
            variant = self._specialization.find(config)
            return CapturedLaunch(variant, split.captured, reached.values, arguments, self._device)
        raise HostReturnedError

    def _launch_anew(self, executable: Executable, values: tuple[Any, ...]) -> None:
        """Launch with a trace of what host code has computed this time.

        It has arrived at its launch point and goes on from there: what it did is not done twice.
        """
        code = self._host.__code__
        args = _arguments_of((code.co_filename, code.co_name))
        for attempt in range(MAX_NEW_TRACES):
            variant = self._specialization.trace_anew(
                executable.config,
                args,
                self._changed_numbers(values),
                is_whole=attempt == MAX_NEW_TRACES - 1,
            )
            self.prepare(executable, variant)
            if _fits(self._definition.split.captured, variant, values):
                executable.launch(*values)
                return
        raise self._unsteady()

    def _unsteady(self) -> errors.BaseError:
        return errors.ShapeSpecializingCall(
            value=f"a value that host code of `{self._definition.name}` computes",
            found="another value at every run of host code",
            fix="compute it from the arguments alone, or hand it to device code in a tensor",
        )

    def _make_session(self, config: Config, blocks: dict[int, int]) -> HostSession:
        fragments = self._session.tunable_fragments
        tunables = {name: config[name] for name in fragments if name in config}
        return HostSession(blocks, tunables, device=self._device)

    def _changed_numbers(self, captured: tuple[Any, ...]) -> frozenset[str]:
        """Where numbers stand that some trace took for constants and that are others now."""
        names = self._definition.split.captured
        checks = [
            (guard.number, compile_guard(names, [guard], variant.trace.constants))
            for variant in self._specialization.variants
            for guard in variant.trace.guards
            if guard.number
        ]
        return frozenset(
            number for number, holds in checks if holds is not None and not holds(*captured)
        )

    def prepare(self, executable: Executable, variant: Variant | None = None) -> None:
        """Give it a launcher for a trace, by default one that fits its config.

        Launchers of traces that it had before are tried where the new one's guards do not hold.
        """
        variant = variant or self._specialization.find(executable.config)
        make = partial(self._find_launcher(executable.runner), self._site, variant)
        others = executable.alternatives
        recover = None
        if others is None:
            launcher = make(executable.config)
        else:
            log, fits = self._definition.warnings, variant.fits
            # Code that was built when its launcher was made leaves nothing to fall back from.
            is_late = executable.runner.backend.builds_at_launch
            listed = lambda: filter(fits, others())  # noqa: E731
            fallback = Fallback(executable.config, listed, make, log, is_late=is_late)
            launcher = fallback.advance()
            recover = fallback.replace if is_late else None
        executable.call = self._make_call(executable)
        if executable.num_launchers % MAX_LAUNCHERS == 0:
            executable.launch = lambda *values: self._launch_anew(executable, values)
        executable.num_launchers += 1
        executable.launch = compile_choice(
            self._definition.split.captured,
            variant.trace.guards,
            variant.trace.constants,
            launcher,
            executable.launch,
            recover,
        )
        executable.launch.device = self._device  # type: ignore[attr-defined]
        make_session = partial(self._make_session, executable.config, executable.blocks)
        executable.recognised = recognised_call(
            self._definition, executable, launcher, variant, make_session, executable.settle
        )

    def _whole_config(self) -> Config:
        function = self._specialization.default.function
        sizes = whole_tile_sizes(function)
        slots = {b.slot: sizes[b.name] for b in function.blocks if b.slot is not None}
        blocks = [slots.get(slot, 1) for slot in range(max(slots, default=-1) + 1)]
        return self._specialization.fitting(Config(block_sizes=blocks))


def _arguments_of(host: tuple[str, str]) -> tuple[Any, ...]:
    """The arguments of the run of host code that is at its launch point; it may have rebound them.

    Whoever runs it calls them ``args``. Handing them to every launch would cost every call.
    """
    frame = sys._getframe(1)
    while (frame.f_code.co_filename, frame.f_code.co_name) != host:
        assert frame.f_back is not None
        frame = frame.f_back
    assert frame.f_back is not None
    return frame.f_back.f_locals["args"]


def _fits(names: Sequence[str], variant: Variant, values: tuple[Any, ...]) -> bool:
    guard = compile_guard(names, variant.trace.guards, variant.trace.constants)
    return guard is None or guard(*values)


class LaunchReached(BaseException):
    """Ends a run of host code at the launch point."""

    def __init__(self, values: tuple[Any, ...]) -> None:
        super().__init__()
        self.values = values


def make_stop(device: torch.device) -> Callable[..., None]:
    """A launcher that launches nothing; host code makes its tensors on the device."""

    def stop(*values: Any) -> None:
        raise LaunchReached(values)

    stop.device = device  # type: ignore[attr-defined]
    return stop


@dataclass(frozen=True)
class CapturedLaunch:
    """One launch that did not happen."""

    variant: Variant
    """The trace that these values fit."""
    names: tuple[str, ...]
    values: tuple[Any, ...]
    """What host code computed, in the order of ``names``."""
    arguments: tuple[Any, ...]
    """The kernel's arguments; copies where host code may change them."""
    device: torch.device

    def read(self, sources: Sequence[str]) -> tuple[Any, ...]:
        """The values of launch expressions such as ``x`` or ``x.size(0)``."""
        return compile_reader(self.names, sources, self.variant.trace.constants)(*self.values)

    @property
    def fits_variant(self) -> bool:
        """Whether everything that the trace took for constant is as it was."""
        return _fits(self.names, self.variant, self.values)

    @property
    def depends_on_config(self) -> bool:
        """Whether host code looks at block sizes or tunables, so that Configs have captures."""
        session = self.variant.trace.session
        return bool(session.observed_slots or session.tunable_fragments)
