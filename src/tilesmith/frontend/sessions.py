"""The one stack of ambient state.

Which kernel's host or device code is running in this thread right now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from tilesmith.diagnostics import errors

if TYPE_CHECKING:
    from tilesmith.frontend.host_session import HostSession
    from tilesmith.frontend.tracer import Tracer

_host: ContextVar[HostSession | None] = ContextVar("tilesmith_host", default=None)
_tracer: ContextVar[Tracer | None] = ContextVar("tilesmith_tracer", default=None)


@contextmanager
def running_host(session: HostSession) -> Iterator[HostSession]:
    """Host code of a kernel runs inside this block."""
    token = _host.set(session)
    try:
        yield session
    finally:
        _host.reset(token)


@contextmanager
def tracing(tracer: Tracer) -> Iterator[Tracer]:
    """Device code of a kernel is traced inside this block."""
    token = _tracer.set(tracer)
    try:
        yield tracer
    finally:
        _tracer.reset(token)


find_tracer: Callable[[], Tracer | None] = _tracer.get
"""The tracer of the device code running now, if any."""


def find_host_session() -> HostSession | None:
    """The session of the host code running now, if any (device code has none)."""
    return None if _tracer.get() is not None else _host.get()


def current_tracer(function: str) -> Tracer:
    """The active tracer; ``function`` names the language function that needs it."""
    tracer = _tracer.get()
    if tracer is not None:
        return tracer
    if _host.get() is not None:
        raise errors.DeviceAPIOnHost(function=function)
    raise errors.NotInsideKernel(function=function)


def current_host_session(function: str) -> HostSession:
    """The active host session; ``function`` names the language function that needs it."""
    session = find_host_session()
    if session is not None:
        return session
    if _tracer.get() is not None:
        raise errors.HostAPIOnDevice(function=function)
    raise errors.NotInsideKernel(function=function)
