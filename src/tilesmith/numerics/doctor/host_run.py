"""Runs a kernel's host code with another launcher, and finds what the launch wrote in its results.

A result is memory that device code wrote, seen through some view, or is computed from such memory
by host code after the launch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from typing_extensions import override

from tilesmith.frontend.containers import tensors_in
from tilesmith.frontend.trace import same_random_numbers
from tilesmith.frontend.tracing.host_run import ArgumentCopier
from tilesmith.frontend.tracing.host_session import HostSession
from tilesmith.frontend.tracing.tracer import running_host
from tilesmith.ir.types import TensorType
from tilesmith.jit.bound_kernel import BoundKernel
from tilesmith.jit.executables import CapturedLaunch
from tilesmith.schedule.config import Config

_NARROWING = (torch.Tensor.bfloat16, torch.Tensor.float, torch.Tensor.half)


def copy_arguments(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments with memory of their own, shared where the originals share it."""
    copier = ArgumentCopier()
    return tuple(map(copier.copy, args))


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
        self.args = copy_arguments(args)
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
        with torch.no_grad(), same_random_numbers(), running_host(HostSession(blocks, tunables)):
            return bound.definition.split.host_function()(launch, *self.args)


def launch_arguments(launch: CapturedLaunch) -> dict[str, Any]:
    """The arguments of the IR function by parameter, as host code has made them."""
    parameters = launch.variant.function.parameters
    values = launch.read([parameter.source for parameter in parameters])
    return {
        p.value.name: x.detach() if isinstance(p.value.type, TensorType) else x
        for p, x in zip(parameters, values)
    }


def like_view(whole: torch.Tensor, view: torch.Tensor) -> torch.Tensor:
    """The elements of ``whole``'s storage that ``view`` shows of another storage like it."""
    return whole.as_strided(view.shape, view.stride(), view.storage_offset())


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
        is_wide = bool(args) and _is_wide(args[0])
        if is_wide and (func in _NARROWING or _is_narrowing(func, args, kwargs or {})):
            return args[0]
        return func(*args, **(kwargs or {}))


def _is_wide(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype == torch.float64


def _is_narrowing(func: Any, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> bool:
    if func not in (torch.Tensor.to, torch.Tensor.type_as):
        return False
    asked = (*args[1:], *keywords.values())
    dtypes = [getattr(x, "dtype", x) for x in asked]
    return any(isinstance(x, torch.dtype) and x.is_floating_point for x in dtypes)
