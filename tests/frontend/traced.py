"""Kernels as IR, straight from the frontend: no pass, no config, no device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tilesmith.frontend.functions.torch_functions import dispatch
from tilesmith.frontend.source.kernel_source import find_loops, read_kernel
from tilesmith.frontend.source.split_kernel import split_kernel
from tilesmith.frontend.trace import Trace, TraceRequest, trace_kernel
from tilesmith.frontend.tracing.host_session import HostSession
from tilesmith.frontend.tracing.tracer import TraceOptions, Tracer, tracing
from tilesmith.ir.printer import print_function


def trace_of(function: Callable[..., Any], *arguments: Any, **options: Any) -> Trace:
    """What tracing a plain function (no decorator) as a kernel gives."""
    kernel = split_kernel(find_loops(read_kernel(function)))
    return trace_kernel(TraceRequest(kernel, arguments, options=TraceOptions(**options)))


def lines_of(function: Callable[..., Any], *arguments: Any, **options: Any) -> list[str]:
    """The lines of the IR, without indentation and places."""
    text = print_function(trace_of(function, *arguments, **options).function)
    return [line.partition("  //")[0].strip() for line in text.splitlines()]


@contextmanager
def open_tracer(**options: Any) -> Iterator[Tracer]:
    """A tracer in the middle of device code, for rules that are called one by one."""
    tracer = Tracer("test", HostSession(), TraceOptions(**options), dispatch)
    with tracing(tracer):
        yield tracer
