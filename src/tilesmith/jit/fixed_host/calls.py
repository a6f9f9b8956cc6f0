"""Calls of recognised arguments: host code is worked out at the first one, and guards fall away.

Nobody else may use these: a bound kernel that is called directly gets arguments of any form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any, NoReturn

import torch

from tilesmith.backends.cpu.backend import CPU_BACKEND
from tilesmith.compiler.specialization import Variant
from tilesmith.frontend.source.kernel_source import KernelSource
from tilesmith.frontend.source.names import parameter_names
from tilesmith.frontend.source.rewriting.quiet_host import is_of_language
from tilesmith.frontend.source.split_kernel import SplitKernel, make_function
from tilesmith.frontend.tracing.guards import is_moving
from tilesmith.frontend.tracing.host_session import HostSession
from tilesmith.frontend.tracing.tracer import running_host
from tilesmith.jit.definition import KernelDefinition
from tilesmith.jit.fixed_host.folding import HostFolder, NotFixedError
from tilesmith.jit.fixed_host.native_calls.finding import find_native_call
from tilesmith.jit.fixed_host.native_calls.watching import HELD_MODULES, names_of
from tilesmith.runtime.arguments import Launcher, compile_choice, compile_guard

Guards = Sequence[tuple[Any, ...]]
Call = Callable[..., Any]


def recognised_call(
    definition: KernelDefinition,
    executable: Any,
    launcher: Launcher,
    variant: Variant,
    make_session: Callable[[], HostSession],
    settle: Callable[[Call], None],
) -> Call:
    """The call of an executable for arguments of one form; only native code takes addresses.

    ``settle`` is told of a shorter one that the first call has found.
    """
    if executable.runner.backend is not CPU_BACKEND or not definition.is_read_once:
        return executable.call
    place = (definition.split, executable.call, executable.launch, launcher)
    trace = variant.trace
    if trace.session.is_used and _ends_in_language(definition.split.source):
        return executable.call
    is_static = definition.settings.static_shapes
    fixed = FixedCalls(*place, trace.guards, trace.constants, make_session, settle, is_static)
    executable.fixed_calls = fixed
    return fixed.call() if is_static else executable.call


def _ends_in_language(source: KernelSource) -> bool:
    """Whether code after the loops may ask for what only a session of host code knows."""
    scope = source.function.__globals__
    return any(is_of_language(scope.get(name)) for name in source.names_after.read)


class _StaleError(Exception):
    """Something else than a form has changed: host code runs as it was written."""


def _refuse(*values: Any) -> NoReturn:
    raise _StaleError


class _Reached(BaseException):
    """Ends a run of host code at its launch point."""


@dataclass(frozen=True)
class FixedCalls:
    """What is needed to make the calls of one executable."""

    split: SplitKernel
    plain: Call
    """The call as it is for arguments of any form."""
    launch: Launcher
    """Chooses among all launchers; ``launcher`` is the one whose trace has the guards."""
    launcher: Launcher
    guards: Guards
    constants: Sequence[Any]
    make_session: Callable[[], HostSession]
    settle: Callable[[Call], None]
    are_sizes_fixed: bool
    """Whether machine code has sizes as constants; if not, launches read them off tensors."""
    owner: int = 0
    """The ``id`` of the form (``ExactForm``) that is found for the arguments, by the values of all
    numbers; 0: the bound kernel is."""

    def call(self) -> Call:
        """A function of arguments of one form."""
        run: Call
        launch: Launcher = self.launch

        def begin(_: Launcher, *args: Any) -> Any:
            nonlocal run, launch
            native = find_native_call(self, args)
            if native is None:
                run, launch = self._fixed(args) or (self._otherwise, self.launch)
            else:
                run = lambda _, *args: native(*args)  # noqa: E731
                self.settle(native)
            return self.plain(*args)

        def call(*args: Any) -> Any:
            try:
                return run(launch, *args)
            except _StaleError:
                return self.plain(*args)

        run = begin
        return call

    def _otherwise(self, _: Launcher, *args: Any) -> Any:
        return self.plain(*args)

    def _fixed(self, args: tuple[Any, ...]) -> tuple[Call, Launcher] | None:
        """Host code and the launcher for it; None where it is not all known beforehand."""
        found: list[HostFolder] = []

        def fold(source: Any) -> bool:
            given = dict(zip(parameter_names(source.tree), args))
            folder = HostFolder(source, given, keeps_views=not self.are_sizes_fixed)
            folder.fold()
            found.append(folder)
            return True

        try:
            # First, because it refuses host code with effects, which must not run once more.
            with torch.no_grad(), running_host(self.make_session()):
                code = self.split.changed_host_code(fold)
            if code is None or not self.fits(args):
                return None
            return self._made(code, found[0])
        except Exception:  # whatever expressions raise: the call itself will raise it
            return None

    def _made(self, code: Any, folder: HostFolder) -> tuple[Call, Launcher]:
        source = self.split.source
        host: FunctionType = make_function(code, source, source.function.__globals__)
        launch = _copy_of(self.launcher)
        open_guards = self.open_guards(folder)
        if open_guards:
            given = (self.split.captured, open_guards, self.constants)
            launch = compile_choice(*given, self.launcher, _refuse)
        for name, value in (*folder.constants.items(), ("device", self.launch.device)):  # type: ignore[attr-defined]
            setattr(launch, name, value)
        return host, launch

    def open_guards(self, folder: HostFolder) -> Guards:
        """Those of something that the forms do not tell."""
        open_names = {*self.split.captured, HELD_MODULES} - folder.known.keys()
        return [g for g in self.guards if is_moving(g) or open_names & names_of(g[0])]

    def fits(self, args: tuple[Any, ...]) -> bool:
        """Whether all guards hold for such arguments."""
        holds = compile_guard(self.split.captured, self.guards, self.constants)
        reached: list[bool] = []

        def stop(*values: Any) -> NoReturn:
            reached.append(holds is None or holds(*values))
            raise _Reached

        stop.device = self.launch.device  # type: ignore[attr-defined]
        try:
            with torch.no_grad(), running_host(self.make_session()):
                self.split.host_function()(stop, *args)
        except _Reached:
            return reached[0]
        return False


def _copy_of(launcher: Launcher) -> Launcher:
    """The same function, with attributes of its own."""
    if not isinstance(launcher, FunctionType):
        raise NotFixedError
    return FunctionType(launcher.__code__, launcher.__globals__, launcher.__name__)
