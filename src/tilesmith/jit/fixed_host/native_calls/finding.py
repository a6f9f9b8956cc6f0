"""Whether calls of one form can run in native code, asked when the first of them is made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from tilesmith.frontend.source.names import parameter_names
from tilesmith.frontend.source.split_kernel import SplitKernel
from tilesmith.frontend.tracing.host_session import HostSession
from tilesmith.frontend.tracing.tracer import running_host
from tilesmith.jit.fixed_host.folding import HostFolder
from tilesmith.jit.fixed_host.native_calls.assembly import NativeCode, native_call
from tilesmith.jit.fixed_host.native_calls.steps import StepFolder
from tilesmith.jit.fixed_host.native_calls.watching import find_watched


class _Calls(Protocol):
    """Of one executable (``FixedCalls``)."""

    @property
    def split(self) -> SplitKernel: ...

    @property
    def plain(self) -> Callable[..., Any]: ...

    @property
    def launcher(self) -> Any: ...

    @property
    def constants(self) -> Sequence[Any]: ...

    @property
    def make_session(self) -> Callable[[], HostSession]: ...

    @property
    def owner(self) -> int: ...

    def open_guards(self, folder: HostFolder) -> Sequence[tuple[Any, ...]]: ...

    def fits(self, args: tuple[Any, ...]) -> bool: ...


def find_native_call(calls: _Calls, args: tuple[Any, ...]) -> Callable[..., Any] | None:
    """A function of arguments of this form; None where a call needs some Python."""
    source = calls.split.source.fresh()
    given = dict(zip(parameter_names(source.tree), args))
    folder = StepFolder(source, given, is_exact=calls.owner != 0)
    try:
        # First, because it refuses host code with effects, which must not run once more.
        with torch.no_grad(), running_host(calls.make_session()):
            folder.fold()
        watched = find_watched(calls.open_guards(folder), folder, calls.constants)
        if watched is None or not calls.fits(args):
            return None
        code = NativeCode.of(calls.launcher, calls.owner)
        return native_call(calls.split, folder, code, args, (calls.plain, watched))
    except Exception:  # whatever expressions raise: the call itself will raise it
        return None
