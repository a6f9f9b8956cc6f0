"""Runs implementations and reads their outputs; the kernel's host code with any launcher.

A result is memory that device code wrote, seen through some view, or is computed from such memory
by host code after the launch.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from typing_extensions import override

from tilesmith.frontend.containers import tensors_in
from tilesmith.frontend.trace import same_random_numbers
from tilesmith.frontend.tracing.host_run import copy_tensors
from tilesmith.frontend.tracing.host_session import HostSession
from tilesmith.frontend.tracing.tracer import running_host
from tilesmith.ir.types import TensorType
from tilesmith.jit.bound_kernel import BoundKernel
from tilesmith.jit.executables import CapturedLaunch
from tilesmith.numerics.doctor.findings import OutputPlace, Outputs
from tilesmith.numerics.tolerance import bits_of
from tilesmith.schedule.config import Config

_NARROWING = (torch.Tensor.bfloat16, torch.Tensor.float, torch.Tensor.half)


class HostRun:
    """One run of host code under a config; ``on_launch`` stands for the launch."""

    def __init__(
        self,
        bound: BoundKernel,
        args: tuple[Any, ...],
        config: Config,
        on_launch: Callable[[CapturedLaunch], None],
    ) -> None:
        probe = bound.capture_launch(args, config)
        self.args = copy_tensors(args)
        self._probe = replace(probe, values=(), arguments=self.args)
        self._on_launch = on_launch
        self.results = list(tensors_in(self._run(bound, config)))

    def _run(self, bound: BoundKernel, config: Config) -> Any:
        def launch(*values: Any) -> None:
            self._on_launch(replace(self._probe, values=values))

        launch.device = self._probe.device  # type: ignore[attr-defined]
        fragments = self._probe.variant.trace.session.tunable_fragments
        tunables = {name: config[name] for name in fragments if name in config}
        blocks = dict(enumerate(config.get("block_sizes", [])))
        session = HostSession(blocks, tunables, device=self._probe.device)
        with torch.no_grad(), same_random_numbers(), running_host(session):
            return bound.definition.split.host_function()(launch, *self.args)


def launch_arguments(launch: CapturedLaunch) -> dict[str, Any]:
    """The arguments of the IR function by parameter, as host code has made them."""
    parameters = launch.variant.function.parameters
    values = launch.read([parameter.source for parameter in parameters])
    return {
        p.value.name: x.detach() if isinstance(p.value.type, TensorType) else x
        for p, x in zip(parameters, values)
    }


def replace_data(launch: CapturedLaunch, tensors: Mapping[str, torch.Tensor]) -> None:
    """Let host code go on with other tensors than those it has made, of another type."""
    for parameter in launch.variant.function.parameters:
        if parameter.value.name in tensors:
            (found,) = launch.read([parameter.source])
            found.data = tensors[parameter.value.name]


class WideResults(TorchFunctionMode):
    """Host code inside leaves fp64 tensors as they are where it asks for a narrower float."""

    @override
    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        keywords = kwargs or {}
        is_narrowing = func in _NARROWING
        if func in (torch.Tensor.to, torch.Tensor.type_as):
            dtypes = [getattr(x, "dtype", x) for x in (*args[1:], *keywords.values())]
            floats = [x for x in dtypes if isinstance(x, torch.dtype) and x.is_floating_point]
            is_narrowing = bool(floats)
        is_wide = bool(args) and getattr(args[0], "dtype", None) == torch.float64
        return args[0] if is_wide and is_narrowing else func(*args, **keywords)


class WrongFormError(Exception):
    """An implementation does not give what the kernel gives."""


def run_implementation(
    function: Callable[..., Any], args: tuple[Any, ...], places: Sequence[OutputPlace]
) -> Outputs:
    """The outputs by name; arguments stay as they are."""
    copies = copy_tensors(args)
    try:
        with torch.no_grad():
            results = list(tensors_in(function(*copies)))
    except SystemExit as error:
        raise WrongFormError(f"it called sys.exit({error.code!r})") from error
    given = list(tensors_in(copies))
    if any(tensor.is_cuda for tensor in given):
        torch.cuda.synchronize()
    found = {place.name: _find(place, results, given).detach() for place in places}
    outputs = {name: tensor.clone() for name, tensor in found.items()}
    for tensor in found.values():
        # Memory that the next run is likely to get back must not hold the right answer.
        if tensor.is_contiguous():
            bits_of(tensor).fill_(-1 if tensor.itemsize > 1 else 0xFF)
    return outputs


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function under torch.compile."""
    return torch.compile(function, dynamic=False)


def without_defaults(
    function: Callable[..., Any], signature: inspect.Signature
) -> Callable[..., Any]:
    """The function for all arguments of a kernel; those it does not know must have their default.

    PyTorch's form of a kernel often leaves out what is optional there.
    """
    try:
        known = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return function
    if any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in known):
        return function
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    num_known = sum(parameter.kind in positional for parameter in known)
    defaults = [parameter.default for parameter in signature.parameters.values()]

    def run(*args: Any) -> Any:
        rest = zip(args[num_known:], defaults[num_known:])
        is_all_default = all(argument is default for argument, default in rest)
        return function(*(args[:num_known] if is_all_default else args))

    return run


def _find(
    place: OutputPlace, results: Sequence[torch.Tensor], given: Sequence[torch.Tensor]
) -> torch.Tensor:
    if place.result < 0:
        return given[place.argument]
    if place.result >= len(results):
        raise WrongFormError(f"it returns {len(results)} tensors; {place.name} is missing")
    return results[place.result]
