"""Runs host code up to its launch point and device code once with proxies: IR and guards."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from types import FunctionType
from typing import Any

import torch

import tilesmith.exc as errors
from tilesmith.diagnostics.catalogue import BaseError
from tilesmith.diagnostics.kernel_warnings import WarningLog
from tilesmith.dtypes import I64
from tilesmith.frontend.advice.foreign_errors import explained, place_in_user_code, undefined
from tilesmith.frontend.captured import CapturedValues
from tilesmith.frontend.containers import items_of, rebuilt, tensors_in
from tilesmith.frontend.device_forms import DEVICE_BUILTINS, DeviceForms
from tilesmith.frontend.device_loops import RUNTIME_FUNCTIONS
from tilesmith.frontend.functions.torch_functions import DeviceMode, dispatch
from tilesmith.frontend.host_calls import HostCalls, traced_host
from tilesmith.frontend.language.host_functions import constexpr
from tilesmith.frontend.source.functionalise import RUNTIME
from tilesmith.frontend.source.names import nested_codes, parameter_names
from tilesmith.frontend.source.split_kernel import SplitKernel
from tilesmith.frontend.tracing import host_run, host_session
from tilesmith.frontend.tracing import tracer as tracers
from tilesmith.frontend.tracing.guards import Guard, GuardList
from tilesmith.frontend.tracing.settled_sizes import larger_blocks
from tilesmith.ir.function import Function
from tilesmith.ir.types import TensorType


@dataclass(frozen=True)
class TraceRequest:
    """A kernel, its arguments, and the values of the Config that host code may see."""

    kernel: SplitKernel
    arguments: tuple[Any, ...]
    constants: frozenset[int] = frozenset()
    """Positions of arguments that are compile-time constants."""
    options: tracers.TraceOptions = field(default_factory=tracers.TraceOptions)
    device: torch.device | None = None
    """Where the kernel runs."""
    block_sizes: Mapping[int, int] = field(default_factory=dict[int, int])
    tunables: Mapping[str, Any] = field(default_factory=dict[str, Any])
    warnings: WarningLog = field(default_factory=WarningLog)
    volatile: frozenset[str] = frozenset()
    """Where captured numbers stand that are known to change from call to call."""
    host_objects: frozenset[int] = frozenset()
    """Positions of arguments that only host code knows: the ``self`` of a method."""
    is_whole: bool = False
    """Whether host code runs with all of its effects: without them it computed something else."""
    are_computed_runtime: bool = False
    """Whether numbers that a larger kernel computes are read at each launch, as arguments are."""
    calls: HostCalls = field(default_factory=HostCalls, compare=False)
    """Calls of the user's functions that the call it is for does not make again."""


def _host_of(request: TraceRequest) -> FunctionType:
    return traced_host(request.kernel, request.arguments, is_whole=request.is_whole)


@dataclass(frozen=True)
class Trace:
    """The IR of one kernel, and what must hold for it to be used again."""

    function: Function
    session: host_session.HostSession
    guards: tuple[Guard, ...]
    """Host values baked in as constants: source expression and value."""
    constants: tuple[Any, ...]
    """What launch expressions and guards call ``__constants__``."""
    covered: tuple[Guard, ...]
    """Guards of what the specialization key covers: for code that is called without a key."""
    tensors: Mapping[str, TensorType]
    """What was taken for granted of each tensor, by the expression that finds it."""
    equal_sizes: tuple[tuple[str, str], ...] = ()
    """Expressions of runtime sizes that were equal, and that the kernel takes for one."""
    observed: Mapping[str, int] = field(default_factory=dict[str, int])
    """What runtime sizes, strides and integers were when traced, by parameter name."""
    argument_aliases: tuple[frozenset[int], ...] = ()
    """For each argument the alias groups of its tensors, whatever views device code has of them."""


class _Traced(BaseException):
    """Ends the run of host code at the launch point."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace


class HostReturnedError(Exception):
    """Host code returned before its first device loop: there is nothing to compile."""


def trace_kernel(request: TraceRequest) -> Trace:
    """Trace a kernel; raises a located error for anything its code does wrong.

    Host code runs for it, without a trace of that: tensors and random numbers are as before, and
    statements that only have effects are left out.
    """
    try:
        return _trace_with(request, host_session.ConstantSizes())
    except HostReturnedError:
        raise
    except Exception:
        whole = replace(request, is_whole=True)
        if _host_of(request).__code__ is _host_of(whole).__code__:
            raise
    # What was left out may have checked the arguments, or have been needed after all.
    return _trace_with(whole, host_session.ConstantSizes())


def _trace_with(request: TraceRequest, constant_sizes: host_session.ConstantSizes) -> Trace:
    try:
        return _attempt(request, constant_sizes)
    except BaseError:
        again = None if request.options.static_shapes else constant_sizes.after_failure()
        if again is None:
            raise
    return _trace_with(request, again)


def _attempt(request: TraceRequest, constant_sizes: host_session.ConstantSizes) -> Trace:
    given = request.arguments
    scratch = host_run.copy_if_changed(request.kernel.source, given, request.host_objects)
    own = () if scratch is given else scratch
    request = replace(request, arguments=scratch)
    session = host_session.HostSession(
        request.block_sizes, request.tunables, constant_sizes=constant_sizes, device=request.device
    )

    for was, tensor in zip(tensors_in(given), tensors_in(scratch)):
        for axis, size in host_run.marked_sizes(was):
            constant_sizes.note_value(size, host_session.place_of(tensor, "size", axis))

    def launch(*values: Any) -> None:
        raise _Traced(_trace_device(request, session, values))

    launch.device, launch.call = request.device, request.calls.record  # type: ignore[attr-defined]
    request.calls.begin()
    host = _host_of(request)
    arguments = [_marked(request, *numbered) for numbered in enumerate(request.arguments)]
    mode = (
        nullcontext()
        if request.options.static_shapes
        else host_run.RuntimeSizeMode(_origins(request), constant_sizes)
    )
    try:
        watch = host_run.HostWatch(request.warnings, host.__code__, request.device)
        with (
            tracers.running_host(session),
            host_run.UnchangedTensors(own, request.calls.note_change),
            host_run.BlockSizeMode(),
            mode,
            watch,
            same_random_numbers(),
        ):
            host(launch, *arguments)
    except _Traced as traced:
        return traced.trace
    except BaseError as error:
        others = larger_blocks(session) if isinstance(error, errors.TileOutOfRange) else {}
        if others:
            return _attempt(replace(request, arguments=given, block_sizes=others), constant_sizes)
        raise _with_place(error) from error.__cause__
    raise HostReturnedError


def same_random_numbers() -> AbstractContextManager[None]:
    """A trial run of host code inside leaves torch's generators as they were."""
    is_live = torch.cuda.is_available() and torch.cuda.is_initialized()
    return torch.random.fork_rng([torch.cuda.current_device()] if is_live else [])


def _marked(request: TraceRequest, position: int, argument: Any) -> Any:
    if position in request.constants | request.host_objects:
        return argument
    source = request.kernel.source
    if parameter_names(source.tree)[position] not in source.computed:
        return mark_runtime(argument, _argument(position))
    if not request.are_computed_runtime:
        return argument
    # They may be sizes, of which 0 and 1 are constants.
    return mark_runtime(argument, _argument(position), constants=(0, 1))


def mark_runtime(argument: Any, origin: Callable[..., Any], constants: tuple[int, ...] = ()) -> Any:
    """Numbers among the arguments are read at each launch: mark them, in containers too.

    ``constants`` are left as they are.
    """
    is_constant = isinstance(argument, int) and argument in constants
    if is_constant or isinstance(argument, (bool, enum.Enum)):
        return argument
    if isinstance(argument, int):
        return host_session.RuntimeInt.make(argument, origin)
    if isinstance(argument, float):
        return host_session.RuntimeFloat(argument)
    items = None if isinstance(argument, constexpr) else items_of(argument)
    if items is None:
        return argument
    marked = [mark_runtime(item.value, _compose(item.get, origin), constants) for item in items]
    if all(new is item.value for new, item in zip(marked, items)):
        return argument
    return rebuilt(argument, marked)


def _compose(get: Callable[[Any], Any], origin: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: get(origin(*args))


def _argument(position: int) -> Callable[..., Any]:
    return lambda *args: args[position]


def _origins(request: TraceRequest) -> dict[int, Callable[..., torch.Tensor]]:
    """How to get each tensor of the arguments, those in containers too, by its identity."""
    origins: dict[int, Callable[..., torch.Tensor]] = {}
    waiting = [(value, _argument(position)) for position, value in enumerate(request.arguments)]
    for value, origin in waiting:
        if isinstance(value, torch.Tensor):
            origins[id(value)] = origin
        else:
            items = items_of(value) or ()
            waiting.extend((item.value, _compose(item.get, origin)) for item in items)
    return origins


def _trace_device(
    request: TraceRequest, session: host_session.HostSession, values: tuple[Any, ...]
) -> Trace:
    kernel, options = request.kernel, request.options
    # 64-bit positions where a tensor needs them, unless the user decided.
    if any(tracers.span_of(x) > tracers.INT32_LIMIT for value in values for x in tensors_in(value)):
        options = replace(options, index_dtype=options.index_dtype or I64)
    tracer = tracers.Tracer(kernel.source.tree.name, session, options, dispatch)
    objects = [request.arguments[position] for position in sorted(request.host_objects)]
    parameters = parameter_names(kernel.source.tree)
    named = list(zip(kernel.captured, values))
    # Parameters with numbers that are constants here, though the key has only their types.
    numbers = {n for n, v in named if n in kernel.source.computed and _holds_numbers(v)}
    guarded = numbers | {parameters[i] for i in request.host_objects}
    tracer.guards = GuardList(kernel.keyed - guarded)
    tracer.warnings = request.warnings
    forms = DeviceForms(RUNTIME_FUNCTIONS)
    overrides = {RUNTIME: RUNTIME_FUNCTIONS, **_builtins_for(kernel, forms)}
    with tracers.tracing(tracer), DeviceMode(tracer), _located_errors():
        captures = CapturedValues(tracer, forms, request.volatile, objects)
        device_values = [_wrap(captures, kernel, *pair) for pair in named]
        captures.note_globals(kernel.device_code, kernel.source.function.__globals__)
        with captures.running(kernel.device_code):
            kernel.device_function(overrides)(*device_values)
        captures.declare_registered()
    function = tracer.finish(tracer.take_region(()))
    for left, right in tracer.equal_sizes:
        tracer.guards.require(f"({left}) == ({right})", value=True)
    guards, constants = tuple(tracer.guards.guards), tuple(tracer.constants)
    equal_sizes = tuple(dict.fromkeys(tracer.equal_sizes))
    aliases = tuple(frozenset(map(tracer.alias_of, tensors_in(a))) for a in request.arguments)
    assumed = tuple(tracer.guards.covered.values()), tracer.guards.tensors
    return Trace(
        function, session, guards, constants, *assumed, equal_sizes, tracer.observed, aliases
    )


def _holds_numbers(value: Any) -> bool:
    items = None if isinstance(value, constexpr) else items_of(value)
    if items is None:
        return type(value) in (int, float)
    return any(_holds_numbers(item.value) for item in items)


def _wrap(captures: CapturedValues, kernel: SplitKernel, name: str, value: Any) -> Any:
    """The device form of a captured value; an error shows the line that reads it."""
    try:
        return captures.wrap(value, name)
    except (errors.CantReadOnDevice, errors.UnsupportedArgumentType) as error:
        place = kernel.source.loop_names.read[name]
        raise error.located(kernel.source.location(place)) from None


def _builtins_for(kernel: SplitKernel, forms: DeviceForms) -> dict[str, Any]:
    """Device forms of the globals read, and of builtins that the module does not define itself."""
    module = kernel.source.function.__globals__
    names = {name for code in nested_codes(kernel.device_code) for name in code.co_names}
    return {
        **{name: forms.of(module[name]) for name in sorted(names) if name in module},
        **{name: value for name, value in DEVICE_BUILTINS.items() if name not in module},
    }


@contextmanager
def _located_errors() -> Iterator[None]:
    """Errors of device code carry the user's line; foreign exceptions are wrapped with it."""
    try:
        yield
    except BaseError as error:
        raise _with_place(error) from error.__cause__
    except RecursionError as error:
        loc = place_in_user_code(error.__traceback__)
        raise errors.RecursiveHelper(function=loc.function, loc=loc) from error
    except (NameError, UnboundLocalError) as error:
        loc = place_in_user_code(error.__traceback__)
        raise undefined(getattr(error, "name", None) or str(error), loc) from error
    except Exception as error:
        raise explained(error) from error


def _with_place(error: BaseError) -> BaseError:
    """The error with the user's line; rules raise it without, deep in the call that it is about."""
    place = place_in_user_code(error.__traceback__)
    return error.located(place).with_traceback(error.__traceback__)
